/** A post-mortem as a saved drawing: the pool beside the request, and the memory by category. */

import { formatBytes, formatShare } from "../../lib/bytes";
import { verdictSentence, whenSentence, type Oom } from "../../model/answer";
import { CATEGORIES, categoryLabel } from "../../model/categories";
import { INKS, fillOf, freeFill, type Fill, type Ink, type Scheme } from "../../theme/palette";
import { Patterns, SvgDrawing, svgFill } from "../shared/svg";

const [WIDTH, LABEL, ROW] = [960, 190, 26];

interface Bar {
  label: string;
  bytes: number;
  fill: Fill;
  /** Where it begins, in bytes. */
  from: number;
}

/** The pool's parts one after another, then the request, then each category on a scale of its own. */
export function oomBars(oom: Oom, scheme: Scheme): { pool: Bar[]; categories: Bar[] } {
  const ink = INKS[scheme];
  const { in_use_bytes: used, free_bytes: free, largest_free_bytes: largest, requested_bytes: requested } = oom;
  const plain = (colour: string): Fill => ({ colour, pattern: "plain" });
  const pool: Bar[] = [];
  if (used !== null && free !== null && largest !== null) {
    pool.push({ label: "in use", bytes: used, fill: plain(ink.used), from: 0 });
    pool.push({ label: "free: largest chunk", bytes: largest, fill: freeFill("largest", scheme), from: used });
    pool.push({
      label: "free: other chunks",
      bytes: free - largest,
      fill: freeFill("other", scheme),
      from: used + largest,
    });
  }
  if (requested !== null) pool.push({ label: "requested", bytes: requested, fill: plain(ink.accent), from: used ?? 0 });
  const bytesOf = (category: (typeof CATEGORIES)[number]): number =>
    oom.ledger.filter((row) => row.category === category).reduce((sum, { bytes }) => sum + bytes, 0);
  const categories = [...CATEGORIES].reverse().map((category) => ({
    label: categoryLabel(category),
    bytes: bytesOf(category),
    fill: fillOf(category, null, scheme),
    from: 0,
  }));
  return { pool, categories: categories.filter(({ bytes }) => bytes > 0) };
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
  const { pool, categories } = oomBars(oom, scheme);
  const [first, second] = [36, 36 + pool.length * ROW + 44];
  const total = categories.reduce((sum, { bytes }) => sum + bytes, 0);
  return (
    <SvgDrawing title={`${whenSentence(oom)}.`} width={WIDTH} height={second + categories.length * ROW + 8} ink={ink}>
      <Patterns fills={[...pool, ...categories].map(({ fill }) => fill)} ground={ink.background} />
      <text x="8" y="14" fill={ink.text}>
        {verdictSentence(oom)}
      </text>
      <Bars bars={pool} top={first} ink={ink} share={null} />
      {categories.length > 0 && (
        <text x="8" y={second - 14} fill={ink.faint}>
          Memory at failure, by category
        </text>
      )}
      <Bars bars={categories} top={second} ink={ink} share={total} />
    </SvgDrawing>
  );
}
