/** Above the table: workers that stopped early, ran out of memory, grow or are fragmented. */

import { conspicuous, type Devices } from "../../model/devices";
import { useStore } from "../shared/context";

export function ConspicuousList({ devices }: { devices: Devices }) {
  const store = useStore();
  const entries = conspicuous(devices);
  if (entries.length === 0) return null;
  return (
    <ul class="small conspicuous" data-testid="conspicuous" aria-label="Workers to look at first">
      {entries.map(({ device, sentence }) => (
        <li key={sentence}>
          {device === null ? (
            sentence
          ) : (
            <button type="button" class="link" title={`Select ${device}`} data-device={device} onClick={() => store.choose({ device })}>
              {sentence}
            </button>
          )}
        </li>
      ))}
    </ul>
  );
}
