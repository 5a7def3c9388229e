/** The module that TensorBoard imports. It calls `render` in an empty document. */

import { h, render as mount } from "preact";
import plotStyle from "uplot/dist/uPlot.min.css?inline";

import { httpSource } from "./api/http";
import { createStore } from "./state/store";
import { keepUp } from "./state/upkeep";
import style from "./theme/style.css?inline";
import viewStyle from "./theme/views.css?inline";
import { App } from "./views/app";

export function render(): void {
  const sheet = document.createElement("style");
  sheet.textContent = plotStyle + style + viewStyle;
  document.head.append(sheet);
  document.documentElement.lang = "en";
  document.title = "Memory";
  const store = createStore(httpSource);
  keepUp(store);
  mount(h(App, { store }), document.body);
}
