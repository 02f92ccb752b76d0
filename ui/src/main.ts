// The first script: fetches the code of the opened page and of everything around it at the same time.

import { loadersOf, partsOf, pathBelow, routeOf } from "./app/route";
import "./style/all.css";

// A page that cannot be fetched is reported where it would be shown.
for (const load of loadersOf(routeOf(partsOf(pathBelow(location))))) load().catch(() => undefined);
void import("./start");
