/** The measured and the predicted peak beside each other, at the size of their place. */

import { useSize } from "../shared/size";
import { PeakBarsDrawing, type PeakBarsProps } from "./bars-drawing";

export function PeakBars(props: PeakBarsProps) {
  const { host, width, height } = useSize();
  return (
    <section aria-label="Peak by category">
      <h3>
        Peak by category <span class="small">the line is the predicted range</span>
      </h3>
      <div class="peak-bars" ref={host} data-testid="peak-bars">
        {width > 0 && <PeakBarsDrawing {...props} width={Math.floor(width)} height={Math.floor(height)} />}
      </div>
    </section>
  );
}
