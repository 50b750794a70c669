// What every file of the page is written with: Preact, its hooks, and templates without a build step.
import { h, render } from "./vendor/preact.js";
import htm from "./vendor/htm.js";

export { h, render };
export { useCallback, useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState } from "./vendor/hooks.js";
export const html = htm.bind(h);
