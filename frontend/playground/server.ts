/**
 * The plugin's routes for the playground: `/CASE/data/...`, as TensorBoard would serve them under a
 * prefix.
 */

import type { IncomingMessage, ServerResponse } from "node:http";

import type { Plugin, ViteDevServer } from "vite";

import { CASES, type Case } from "./cases";
import { devicesOf } from "./devices";
import { deviceMemoryOf, fixesOf, mapOf, mapRefOf, oomsOf } from "./allocator";
import {
  activationsOf,
  infoOf,
  layersOf,
  ledgerTotalsOf,
  overviewOf,
  poolOf,
  snapshotAt,
  snapshotsOf,
  type Plan,
} from "./training";
import { timelineOf, timelineRefOf } from "./timeline";
import type { TimelineRef } from "../src/schema";

interface Answer {
  type: string;
  body: string | Uint8Array;
  status?: number;
}

const json = (value: unknown): Answer => ({
  type: "application/json",
  body: JSON.stringify(value),
});

export function answer(chosen: Case, route: string, query: URLSearchParams): Answer {
  if (chosen.refuses !== undefined)
    return { type: "text/plain", body: chosen.refuses, status: 400 };
  if (route === "runs") return json({ plugin_version: "0.1.0", runs: chosen.plans.map(infoOf) });
  const plan = chosen.plans.find(({ run }) => run === query.get("run"));
  if (!plan) return { type: "text/plain", body: "There is no such run.", status: 404 };
  const number = (name: string, otherwise: number): number => Number(query.get(name) ?? otherwise);
  if (route === "overview") {
    const body = overviewOf(
      plan,
      number("first_step", 0),
      number("last_step", plan.steps - 1),
      number("points", 1500),
    );
    return { type: "application/x-tb-memplugin-columns", body };
  }
  if (route === "pool") {
    const body = poolOf(
      plan,
      number("first_step", 0),
      number("last_step", plan.steps - 1),
      number("points", 1500),
    );
    return { type: "application/x-tb-memplugin-columns", body };
  }
  if (route === "snapshots") return json({ run: plan.run, snapshots: snapshotsOf(plan) });
  if (route === "snapshot") return json(snapshotAt(plan, number("step", 0)));
  if (route === "activations") {
    const body = activationsOf(
      plan,
      number("first_step", 0),
      number("last_step", plan.steps - 1),
      number("points", 1500),
    );
    return { type: "application/x-tb-memplugin-columns", body };
  }
  if (route === "ledger_totals") {
    return {
      type: "application/x-tb-memplugin-columns",
      body: ledgerTotalsOf(plan, query.get("layer")),
    };
  }
  if (route === "devices") return json(devicesOf(plan));
  if (route === "timelines") return json({ run: plan.run, timelines: timelinesOf(plan) });
  if (route === "timeline")
    return {
      type: "application/x-tb-memplugin-columns",
      body: timelineOf(plan, number("step", 0)),
    };
  if (route === "layers") return json(layersOf(plan, number("step", plan.steps - 1)));
  return (
    ofAllocator(plan, route, number) ?? {
      type: "text/plain",
      body: `The playground has no route ${route}.`,
      status: 404,
    }
  );
}

const timelinesOf = (plan: Plan): TimelineRef[] =>
  plan.bare ? [] : snapshotsOf(plan).map(({ step }) => timelineRefOf(plan, step));

function ofAllocator(
  plan: Plan,
  route: string,
  number: (name: string, otherwise: number) => number,
): Answer | null {
  const step = number("step", 43 + number("oom", 0));
  switch (route) {
    case "maps":
      return json({
        run: plan.run,
        maps: plan.pool ? snapshotsOf(plan).map(({ step: traced }) => mapRefOf(plan, traced)) : [],
      });
    case "map":
      return { type: "application/x-tb-memplugin-columns", body: mapOf(plan, step) };
    case "oom":
      return json({ run: plan.run, ooms: oomsOf(plan) });
    case "fixes":
      return json(fixesOf(plan, number("oom", 0)));
    case "device_memory":
      return json(deviceMemoryOf(plan, number("step", plan.steps - 1)));
    default:
      return null;
  }
}

const PAGE = `<!doctype html><html><head><base href="plugin/tb_memplugin/"></head>
<body><script type="module" src="/playground/start.ts"></script></body></html>`;

const index = (): string =>
  `<!doctype html><title>Playground</title><h1>Playground</h1><ul>${Object.entries(CASES)
    .map(
      ([name, { about }]) =>
        `<li><a href="/${name}/data/plugin_entry.html">${name}</a>: ${about}</li>`,
    )
    .join("")}</ul>`;

async function serve(
  server: ViteDevServer,
  request: IncomingMessage,
  response: ServerResponse,
  next: () => void,
): Promise<void> {
  const url = new URL(request.url ?? "/", "http://playground");
  const send = ({ type, body, status = 200 }: Answer): void => {
    response.writeHead(status, { "content-type": type });
    response.end(body);
  };
  if (url.pathname === "/") return send({ type: "text/html", body: index() });
  const [, name = "", route = ""] = /^\/([\w-]+)\/data\/(.*)$/.exec(url.pathname) ?? [];
  const chosen = CASES[name];
  if (!chosen) return next();
  if (route === "plugin_entry.html")
    return send({ type: "text/html", body: await server.transformIndexHtml(url.pathname, PAGE) });
  if (route === "runs") return send(json(chosen.plans.map(({ run }) => run)));
  if (!route.startsWith("plugin/tb_memplugin/")) return next();
  if (chosen.delay !== undefined) await new Promise((resume) => setTimeout(resume, chosen.delay));
  send(answer(chosen, route.replace("plugin/tb_memplugin/", ""), url.searchParams));
}

export const playground = (): Plugin => ({
  name: "playground",
  configureServer(server) {
    server.middlewares.use((request, response, next) => {
      void serve(server, request, response, next);
    });
  },
});
