// Starts the page.

import { mount } from "svelte";
import App from "./App.svelte";
import { openAlerts } from "./app/alert_count.svelte";
import { listenForKeys } from "./app/keyboard.svelte";
import { live } from "./app/live.svelte";
import { followLinks } from "./app/router.svelte";
import { meta } from "./app/server.svelte";
import { registerServiceWorker } from "./app/shell/service_worker";
import { applyTheme } from "./app/theme.svelte";
import "./style/all.css";

applyTheme();
followLinks();
listenForKeys();
live.begin();
openAlerts.begin();
void meta.load();
mount(App, { target: document.getElementById("app")! });
registerServiceWorker();
