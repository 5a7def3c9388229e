/** Fills and axes of drawings that can be saved: the same colours and patterns as on a canvas. */

import type { ComponentChildren } from "preact";

import { byteTicks } from "../../charts/axis";
import { DOTS, DOT_RADIUS } from "../../charts/paint";
import { FONT } from "../../charts/rules";
import type { Fill, Ink } from "../../theme/palette";

const SIZE = 6;

const idOf = ({ colour, pattern }: Fill): string => `fill-${pattern}-${colour.replace(/[^\w]/g, "")}`;

/** Value of the attribute `fill`; the drawing must contain the `Patterns` of all its fills. */
export const svgFill = (fill: Fill): string => (fill.pattern === "plain" ? fill.colour : `url(#${idOf(fill)})`);

/** Lines or dots in the ground's colour; hatched leans the other way and shows the ground between its lines. */
function Pattern({ fill, ground }: { fill: Fill; ground: string }) {
  if (fill.pattern === "dotted") {
    return (
      <pattern id={idOf(fill)} width={SIZE} height={SIZE} patternUnits="userSpaceOnUse">
        <rect width={SIZE} height={SIZE} fill={fill.colour} />
        {DOTS.map((at) => (
          <circle key={at} cx={at} cy={at} r={DOT_RADIUS} fill={ground} opacity="0.75" />
        ))}
      </pattern>
    );
  }
  const hatched = fill.pattern === "hatched";
  const [left, right] = hatched ? [-1, SIZE + 1] : [SIZE + 1, -1];
  const lines = [-SIZE, 0, SIZE].map((shift) => `M${shift - 1} ${left}L${shift + SIZE + 1} ${right}`).join("");
  return (
    <pattern id={idOf(fill)} width={SIZE} height={SIZE} patternUnits="userSpaceOnUse">
      <rect width={SIZE} height={SIZE} fill={hatched ? ground : fill.colour} />
      <path d={lines} stroke={hatched ? fill.colour : ground} stroke-width="1.4" opacity={hatched ? 0.85 : 0.6} />
    </pattern>
  );
}

export function Patterns({ fills, ground }: { fills: readonly Fill[]; ground: string }) {
  const patterned = new Map(fills.filter(({ pattern }) => pattern !== "plain").map((fill) => [idOf(fill), fill]));
  return (
    <defs>
      {[...patterned].map(([id, fill]) => (
        <Pattern key={id} fill={fill} ground={ground} />
      ))}
    </defs>
  );
}

const HEAD = 36;

interface SvgDrawingProps {
  title: string;
  width: number;
  height: number;
  ink: Ink;
  children: ComponentChildren;
}

export function SvgDrawing({ title, width, height, ink, children }: SvgDrawingProps) {
  const box = { width, height: height + HEAD, viewBox: `0 0 ${width} ${height + HEAD}` };
  return (
    <svg xmlns="http://www.w3.org/2000/svg" {...box} font-family={FONT} font-size="12" role="img" aria-label={title}>
      <rect width={width} height={height + HEAD} fill={ink.background} />
      <text x="8" y="24" font-size="16" font-weight="500" fill={ink.text}>
        {title}
      </text>
      <g transform={`translate(0 ${HEAD})`}>{children}</g>
    </svg>
  );
}

interface ByteAxisProps {
  top: number;
  /** Height of the plot, and its left and right end, in pixels. */
  height: number;
  left: number;
  right: number;
  y: (bytes: number) => number;
  ink: Ink;
}

/** Lines across a plot with sizes on their left. */
export function ByteAxis({ top, height, left, right, y, ink }: ByteAxisProps) {
  const { values, labels } = byteTicks(top, Math.max(height / 64, 2));
  return (
    <>
      {values.map((value, index) => (
        <g key={value}>
          <line x1={left} x2={right} y1={y(value)} y2={y(value)} stroke={ink.grid} />
          <text x={left - 8} y={y(value) + 4} text-anchor="end" fill={ink.faint}>
            {labels[index]}
          </text>
        </g>
      ))}
    </>
  );
}
