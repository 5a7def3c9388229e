/** A post-mortem as a drawing that can be saved: the pool beside the request, and who held it. */

import { formatBytes } from "../lib/bytes";
import { formatShare } from "../lib/format";
import { CATEGORIES, categoryLabel } from "../model/categories";
import { verdictSentence, whenSentence, type Oom } from "../model/oom";
import { INKS, fillOf, type Fill, type Ink, type Scheme } from "../theme/palette";
import { Patterns, SvgDrawing, svgFill } from "./svg";

const [WIDTH, LABEL, ROW] = [960, 190, 26];

interface Bar {
  label: string;
  bytes: number;
  fill: Fill;
  /** Where it begins, in bytes. */
  from: number;
}

/** The pool's parts one after another, then the request, then each category on a scale of its own. */
export function oomBars(oom: Oom, scheme: Scheme): { pool: Bar[]; holders: Bar[] } {
  const ink = INKS[scheme];
  const { in_use_bytes: used, free_bytes: free, largest_free_bytes: largest, requested_bytes: asked } = oom;
  const plain = (colour: string): Fill => ({ colour, pattern: "plain" });
  const pool: Bar[] = [];
  if (used !== null && free !== null && largest !== null) {
    pool.push({ label: "in use", bytes: used, fill: plain(ink.faint), from: 0 });
    pool.push({ label: "largest free block", bytes: largest, fill: plain(ink.idle), from: used });
    pool.push({ label: "rest of the free", bytes: free - largest, fill: { colour: ink.idle, pattern: "diagonal" }, from: used + largest });
  }
  if (asked !== null) pool.push({ label: "asked for", bytes: asked, fill: plain(ink.accent), from: used ?? 0 });
  const held = (category: (typeof CATEGORIES)[number]): number =>
    oom.ledger.filter((row) => row.category === category).reduce((sum, { bytes }) => sum + bytes, 0);
  const holders = CATEGORIES.map((category) => ({
    label: categoryLabel(category),
    bytes: held(category),
    fill: fillOf(category, null, scheme),
    from: 0,
  }));
  return { pool, holders: holders.filter(({ bytes }) => bytes > 0) };
}

function Bars({ bars, top, ink, share }: { bars: readonly Bar[]; top: number; ink: Ink; share: number | null }) {
  const most = Math.max(1, ...bars.map(({ from, bytes }) => from + bytes));
  const scale = (bytes: number): number => (bytes / most) * (WIDTH - LABEL - 130);
  return (
    <>
      {bars.map(({ label, bytes, fill, from }, index) => {
        const y = top + index * ROW;
        return (
          <g key={label}>
            <text x={LABEL - 10} y={y + 15} text-anchor="end" fill={ink.text}>
              {label}
            </text>
            <rect
              x={LABEL + scale(from)}
              y={y}
              width={Math.max(scale(bytes), 1.5)}
              height={ROW - 6}
              fill={svgFill(fill)}
              stroke={ink.faint}
            />
            <text x={LABEL + scale(from + bytes) + 6} y={y + 15} fill={ink.text}>
              {formatBytes(bytes)}
              {share !== null && `, ${formatShare(bytes / share)}`}
            </text>
          </g>
        );
      })}
    </>
  );
}

export function OomDrawing({ oom, scheme }: { oom: Oom; scheme: Scheme }) {
  const ink = INKS[scheme];
  const { pool, holders } = oomBars(oom, scheme);
  const [first, second] = [36, 36 + pool.length * ROW + 44];
  const total = holders.reduce((sum, { bytes }) => sum + bytes, 0);
  return (
    <SvgDrawing title={`${whenSentence(oom)}.`} width={WIDTH} height={second + holders.length * ROW + 8} ink={ink}>
      <Patterns fills={[...pool, ...holders].map(({ fill }) => fill)} ground={ink.background} />
      <text x="8" y="14" fill={ink.text}>
        {verdictSentence(oom)}
      </text>
      <Bars bars={pool} top={first} ink={ink} share={null} />
      {holders.length > 0 && (
        <text x="8" y={second - 14} fill={ink.faint}>
          Who held it, by category
        </text>
      )}
      <Bars bars={holders} top={second} ink={ink} share={total} />
    </SvgDrawing>
  );
}
