/** The styles of the page, those of the shared parts before those of the views, which may differ from them. */

import base from "../../theme/base.css?inline";
import chart from "../shared/chart.css?inline";
import figures from "../shared/figures.css?inline";
import tables from "../shared/tables.css?inline";
import memoryMap from "../shared/memory-map/memory-map.css?inline";
import fixes from "../shared/fixes.css?inline";
import app from "./app.css?inline";
import layers from "../layers/layers.css?inline";
import fragmentation from "../fragmentation/fragmentation.css?inline";
import oom from "../oom/oom.css?inline";
import compare from "../compare/compare.css?inline";
import layer from "../layer/layer.css?inline";
import answers from "./answers.css?inline";
import step from "../step/step.css?inline";
import whatIf from "../what-if/what-if.css?inline";
import devices from "../devices/devices.css?inline";

export const STYLES = [
  base,
  chart,
  figures,
  tables,
  memoryMap,
  fixes,
  app,
  layers,
  fragmentation,
  oom,
  compare,
  layer,
  answers,
  step,
  whatIf,
  devices,
].join("");
