/** What is missing of the pool and why, and what memory growth and the driver's own allocator change. */

import { formatBytes } from "../lib/bytes";
import { unbroken } from "../lib/format";
import { poolGrows, type PoolSteps } from "../model/pool";
import type { RunInfo } from "../model/run";
import type { SnapshotSummary } from "../model/snapshot";
import { lastKnown } from "./overview-spec";
import { Nothing } from "./states";

/** Sentences on growth that are shown before the earlier ones are unfolded. */
const SENTENCES = 5;

const ofDriver = (run: RunInfo): string[] => run.notes.filter((note) => note.includes("cuda_malloc_async"));

/** The recorder's sentences on what is missing; one of our own where figures are missing without any. */
export function Missing({ run, list }: { run: RunInfo; list: readonly SnapshotSummary[] }) {
  const told = [...ofDriver(run), ...list.flatMap(({ not_available }) => not_available)];
  const untold = list.some(({ pool_bytes }) => pool_bytes === null) && told.length === 0;
  const own = "The pool and its free blocks are not available at some of these steps, because their traces do not hold them.";
  const sentences = [...new Set(untold ? [own] : told)];
  if (sentences.length === 0) return null;
  return (
    <ul class="notices" data-testid="not-available">
      {sentences.map((sentence) => (
        <li key={sentence}>{sentence}</li>
      ))}
    </ul>
  );
}

export function NoSnapshots({ run }: { run: RunInfo }) {
  const why = ofDriver(run);
  return (
    <Nothing title="No step of this run was traced on this device">
      {why.map((sentence) => (
        <p key={sentence}>{sentence}</p>
      ))}
      {why.length === 0 && (
        <>
          <p>
            The pool and its free blocks are read at traced steps. Tracing is on unless <code>overhead=0</code> was given; name steps to
            trace with:
          </p>
          <pre tabIndex={0}>
            <code>{'tb_memplugin.MemoryCallback("runs/exp1", trace_steps=[10, 100])'}</code>
          </pre>
        </>
      )}
      {why.length > 0 && <DriversAllocator />}
    </Nothing>
  );
}

function DriversAllocator() {
  return (
    <p>
      With <code>TF_GPU_ALLOCATOR=cuda_malloc_async</code>, memory comes from the CUDA driver's own pool, which joins free pieces by mapping
      them anew. It reports no allocations, so there is no pool size, no free blocks, no map, no layers and no chunks of a failure to show.
      Bytes in use and their peak are measured at every step all the same.
    </p>
  );
}

/** How this pool grew, newest last. */
export function PoolGrowth({ pool }: { pool: PoolSteps }) {
  const { sentences } = pool;
  if (sentences.length === 0) return null;
  const [earlier, shown] = [sentences.slice(0, -SENTENCES), sentences.slice(-SENTENCES)];
  const items = (some: readonly string[]) => some.map((sentence) => <li key={sentence}>{unbroken(sentence)}</li>);
  return (
    <div class="pool-growth">
      {earlier.length > 0 && (
        <details>
          <summary>{earlier.length} earlier</summary>
          <ul>{items(earlier)}</ul>
        </details>
      )}
      <ul data-testid="pool-growth">{items(shown)}</ul>
    </div>
  );
}

/** What memory growth changes, by what this pool does. */
export function AboutGrowth({ pool }: { pool: PoolSteps }) {
  const grows = poolGrows(pool);
  const gpu = pool.device.includes("GPU");
  const capacity = lastKnown(pool.capacity_bytes);
  const limit = capacity === null ? "its limit" : `its limit of ${formatBytes(capacity)}`;
  const own = {
    true: `This pool grows as memory is needed${gpu ? " (memory growth is on)" : ": the CPU's always does"}. What it has not taken yet, others may use.`,
    false: `This pool was at ${limit} from the first traced step on: without memory growth, TensorFlow takes it all at once. The driver then counts all of it as this process's, used or not.`,
    null: "",
  }[String(grows) as "true" | "false" | "null"];
  return (
    <details class="folded about-growth" data-testid="about-growth" data-grows={String(grows)}>
      <summary>What memory growth changes</summary>
      {own && <p>{unbroken(own)}</p>}
      <p>
        With memory growth (<code>tf.config.experimental.set_memory_growth</code> or <code>TF_FORCE_GPU_ALLOW_GROWTH=true</code>) the pool
        begins with a region of {unbroken("2 MiB")} and takes another, mostly twice as large as the last, when no free block is large
        enough. It keeps its regions: idle memory goes back to the device only where an allocation would fail otherwise (on a GPU), or never
        (on the CPU). A free block never reaches from one region into the next, so a grown pool has more and smaller pieces; without growth
        the limit is one region.
      </p>
      <DriversAllocator />
    </details>
  );
}
