import { afterEach, describe, expect, it, vi } from "vitest";

import { httpSource, Refused } from "../../src/api/source";
import { AS_RECORDED } from "../../src/model/what-if";

const signal = new AbortController().signal;

/** What is fetched while `work` runs, which every answer refuses. */
async function fetched(
  work: () => Promise<unknown>,
  answer: () => Response = () => new Response("", { status: 500 }),
) {
  const fetch = vi.fn<(address: string, init: RequestInit) => Promise<Response>>(() =>
    Promise.resolve(answer()),
  );
  vi.stubGlobal("fetch", fetch);
  const error: unknown = await work().then(
    () => null,
    (cause: unknown) => cause,
  );
  return { address: fetch.mock.calls[0]?.[0], error };
}

afterEach(() => vi.unstubAllGlobals());

describe("the routes", () => {
  it("are relative, with the parameters that are known", async () => {
    const query = {
      device: "GPU:0",
      phase: "train" as const,
      points: 600,
      span: null,
      session: null,
    };
    const asked: [() => Promise<unknown>, string][] = [
      [() => httpSource.runs(signal), "./runs"],
      [
        () => httpSource.overview(signal, "a b", query),
        "./overview?run=a+b&device=GPU%3A0&phase=train&points=600",
      ],
      [
        () => httpSource.overview(signal, "a b", { ...query, span: [3, 9], session: "s" }),
        "./overview?run=a+b&device=GPU%3A0&phase=train&first_step=3&last_step=9&points=600&session=s",
      ],
      [
        () => httpSource.activations(signal, "r", 10, [0, 5]),
        "./activations?run=r&first_step=0&last_step=5&points=10",
      ],
      [
        () => httpSource.whatIf(signal, "r", "GPU:0", { ...AS_RECORDED, batch_size: "8" }),
        "./what_if?run=r&device=GPU%3A0&batch_size=8",
      ],
      [() => httpSource.plan(signal, "r", "GPU:0", "", ""), "./plan?run=r&device=GPU%3A0"],
      [
        () => httpSource.plan(signal, "r", "GPU:0", "8GiB", "96"),
        "./plan?run=r&device=GPU%3A0&budget=8GiB&batch_size=96",
      ],
      [() => httpSource.hostRuns(signal), "../../runs"],
    ];
    for (const [work, address] of asked) expect((await fetched(work)).address).toBe(address);
  });
});

describe("an error", () => {
  const refusal = async (body: string, headers: Record<string, string>) =>
    (
      await fetched(
        () => httpSource.runs(signal),
        () => new Response(body, { status: 404, headers }),
      )
    ).error as Refused;

  it("has the server's sentence, and the parameter that it is about", async () => {
    const error = await refusal(" no run of that name \n", {
      "content-type": "text/plain; charset=utf-8",
      "x-parameter": "run",
    });
    expect(error).toBeInstanceOf(Refused);
    expect([error.message, error.status, error.parameter]).toEqual([
      "no run of that name",
      404,
      "run",
    ]);
    expect((await refusal("x".repeat(900), { "content-type": "text/plain" })).message.length).toBe(
      500,
    );
  });

  it("shows no page of another server", async () => {
    const error = await refusal("<html>proxy</html>", { "content-type": "text/html" });
    expect([error.message, error.parameter]).toEqual(["The server answered 404 for ./runs.", null]);
    expect((await refusal("", { "content-type": "text/plain" })).message).toBe(
      "The server answered 404 for ./runs.",
    );
  });

  it("says that the server does not answer, unless the page itself gave up", async () => {
    const failing = (of: AbortSignal) =>
      fetched(
        () => httpSource.runs(of),
        () => {
          throw new TypeError("Failed to fetch");
        },
      );
    const work = await failing(signal);
    expect((work.error as Error).message).toBe("The server does not answer. Is it still running?");
    expect(((await failing(AbortSignal.abort())).error as Error).message).toBe("Failed to fetch");
  });
});
