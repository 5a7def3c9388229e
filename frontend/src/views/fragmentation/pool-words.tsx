/** Notes on unknown pool figures, pool growth, and the effect of memory growth and of cuda_malloc_async. */

import { formatBytes, unbroken } from "../../lib/bytes";
import { poolGrows, type PoolSteps } from "../../model/pool";
import { isGpu, type RunInfo } from "../../model/run";
import type { SnapshotSummary } from "../../model/snapshot";
import { lastKnown } from "../shared/frame";
import { NoticeList, Nothing } from "../shared/states";

/** Sentences on growth that are shown; earlier ones are folded. */
const SENTENCES = 5;

const ofDriver = (run: RunInfo): string[] => run.notes.filter((note) => note.includes("cuda_malloc_async"));

/** The recorder's sentences on missing figures; the page's own sentence if the recorder gave none. */
export function Missing({ run, list }: { run: RunInfo; list: readonly SnapshotSummary[] }) {
  const told = [...ofDriver(run), ...list.flatMap(({ not_available }) => not_available)];
  const untold = list.some(({ pool_bytes }) => pool_bytes === null) && told.length === 0;
  const own = "The pool and its free chunks are unknown at some traced steps: their traces do not contain them.";
  return <NoticeList sentences={[...new Set(untold ? [own] : told)]} testid="not-available" />;
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
            The pool was not measured, and free chunks are known at traced steps only. Tracing is off with <code>overhead=0</code> and for
            replicas; choose the steps with:
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
      With <code>TF_GPU_ALLOCATOR=cuda_malloc_async</code>, TensorFlow allocates from the CUDA driver's memory pool. That allocator reports
      statistics only: pool size, free chunks, memory maps, layers and the chunks of a failed allocation are unknown. Bytes in use and peaks
      are measured at every step.
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

/** The effect of memory growth, and whether this pool grows. */
export function AboutGrowth({ pool }: { pool: PoolSteps }) {
  const grows = poolGrows(pool);
  const gpu = isGpu(pool.device);
  const capacity = lastKnown(pool.capacity_bytes);
  const limit = capacity === null ? "its limit" : `its limit of ${formatBytes(capacity)}`;
  const own = {
    true: `This pool grows on demand${gpu ? " (memory growth is on)" : ", as the CPU's always does"}. Other processes can use unreserved memory.`,
    false: `This pool was at ${limit} from the first known step: without memory growth, TensorFlow reserves all of it at the start. The driver counts it all as used by this process.`,
    null: "",
  }[String(grows) as "true" | "false" | "null"];
  return (
    <details class="folded about-growth" data-testid="about-growth" data-grows={String(grows)}>
      <summary>Effect of memory growth</summary>
      {own && <p>{unbroken(own)}</p>}
      <p>
        With memory growth (<code>tf.config.experimental.set_memory_growth</code> or <code>TF_FORCE_GPU_ALLOW_GROWTH=true</code>) the pool
        starts with a region of {unbroken("2 MiB")} and reserves another, usually twice as large, when no free chunk is large enough. On a
        GPU the allocator releases regions only if an allocation would fail otherwise; on the CPU it never does. Free chunks do not span
        regions, so a grown pool has more and smaller free chunks. Without growth, the pool is one region.
      </p>
      <DriversAllocator />
    </details>
  );
}
