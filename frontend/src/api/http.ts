/** The plugin's routes. Every address is relative to the document's base, so that prefixes and nested frames work. */

import { list, text } from "../lib/check";
import { Refused, jsonOf, routesOver, type Ask, type Source } from "./source";

const get: Ask = async (route, parameters, signal) => {
  const known = Object.entries(parameters).flatMap(([name, value]) => (value === null ? [] : [[name, String(value)]]));
  const address = known.length > 0 ? `${route}?${new URLSearchParams(known).toString()}` : route;
  let response: Response;
  try {
    response = await fetch(address, { signal, credentials: "same-origin" });
  } catch (cause) {
    if (signal.aborted) throw cause;
    throw new Error("The server does not answer. Is it still running?", { cause });
  }
  if (response.ok) return response.arrayBuffer();
  const isSentence = response.headers.get("content-type")?.startsWith("text/plain") ?? false;
  const sentence = isSentence ? (await response.text()).trim().slice(0, 500) : "";
  const parameter = response.headers.get("x-parameter");
  throw new Refused(response.status, sentence || `The server answered ${response.status} for ${route}.`, parameter);
};

export const httpSource: Source = {
  ...routesOver((route, parameters, signal) => get(`./${route}`, parameters, signal)),
  hostRuns: async (signal) => list(text)(jsonOf(await get("../../runs", {}, signal)), "runs"),
};
