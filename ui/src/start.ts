// Starts the page: themes, links, keys, live updates, and the app itself.

import { mount } from "svelte";
import App from "./App.svelte";
import { openAlerts } from "./app/alert_count.svelte";
import { listenForKeys } from "./app/keyboard.svelte";
import { live } from "./app/live.svelte";
import { prefetchPages } from "./app/prefetch";
import { followLinks } from "./app/router.svelte";
import { meta } from "./app/server.svelte";
import { registerServiceWorker } from "./app/shell/service_worker";
import { applyTheme } from "./app/theme.svelte";

applyTheme();
followLinks();
listenForKeys();
live.begin();
openAlerts.begin();
void meta.load();
mount(App, { target: document.getElementById("app")! });
prefetchPages();
registerServiceWorker();
