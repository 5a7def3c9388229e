/** The layers of the fullest devices side by side. */

import { useEffect, useMemo } from "preact/hooks";

import { partsText } from "../../model/categories";
import { layersOnDevices, type LayerOnDevices } from "../../model/devices";
import { partsOf } from "../../model/layers";
import { NOT_TIED, namesOf } from "../../model/run";
import { useStore } from "../shared/context";
import { Choose } from "../shared/controls";
import { PartsBar } from "../shared/figures";
import { LongTable, useScrollWindow } from "../shared/long-table";
import { figured } from "../shared/tips";
import type { DeviceRow, Phase } from "../../schema";

/** How many devices fit beside each other. */
const MOST = 8;

type Traced = DeviceRow & { breakdown: NonNullable<DeviceRow["breakdown"]> };

interface RowProps {
  layer: LayerOnDevices;
  name: string;
  devices: readonly Traced[];
  longest: number;
}

function LayerRow({ layer, name, devices, longest }: RowProps) {
  const { path, frozen, on } = layer;
  return (
    <tr>
      <th scope="row" title={path ?? ""}>
        {path === null ? (
          name
        ) : (
          <Choose class="leads" these={{ view: "layer", layer: path }}>
            {name}
          </Choose>
        )}
      </th>
      {devices.map(({ device, breakdown }, at) => {
        const own = on[at] ?? null;
        const parts = own === null ? [] : partsOf(own);
        return (
          <td
            key={device}
            class="parts"
            {...figured(
              `${device}:${path ?? ""}`,
              own?.total ?? 0,
              name,
              partsText(parts),
              `${device}, step ${breakdown.step}`,
            )}
          >
            <PartsBar parts={parts} longest={longest} trainable={frozen ? false : null} />
          </td>
        );
      })}
    </tr>
  );
}

/** Behind the worker, where a name may break. */
const cut = (device: string): number => device.lastIndexOf("/") + 1;

const isTraced = (row: DeviceRow): row is Traced => row.breakdown !== null;

/** Of the first of these devices that were traced; nothing for a single one. */
export function DeviceLayers({ rows, phase }: { rows: readonly DeviceRow[]; phase: Phase }) {
  const store = useStore();
  const run = store.primary.value;
  const { snapshots } = store.fetched;
  const devices = rows.filter(isTraced).slice(0, MOST);
  const questions = devices.flatMap(({ device, breakdown: { step } }) =>
    run ? [[run, device, { phase, step }] as const] : [],
  );
  useEffect(
    () => questions.forEach((one) => snapshots.want(...one)),
    [JSON.stringify(questions.map((one) => snapshots.identity(...one)))],
  );
  const answers = questions.map((one) => snapshots.read(...one));
  const error = answers.find((one) => one.error !== null)?.error ?? "";
  const ledgers = answers.flatMap(({ value }) => (value ? [value.ledger] : []));
  const known = ledgers.length === devices.length;
  const layers = useMemo(() => (known ? layersOnDevices(ledgers) : []), [known, ...ledgers]);
  const names = useMemo(() => namesOf(layers.flatMap(({ path }) => path ?? [])), [layers]);
  const scroll = useScrollWindow(layers.length);
  if (devices.length < 2) return null;
  const longest = layers[0]?.most ?? 1;
  return (
    <div class="device-layers" title={error} aria-busy={!known && error === ""}>
      <LongTable
        label="Layers on devices"
        testid="device-layers"
        class="layers"
        lines={layers}
        scroll={scroll}
        head={
          <thead>
            <tr>
              <th scope="col">layer</th>
              {devices.map(({ device }) => (
                <th scope="col" key={device} class="parts">
                  <Choose title={device} these={{ device }}>
                    {device.slice(0, cut(device))}
                    <wbr />
                    {device.slice(cut(device))}
                  </Choose>
                </th>
              ))}
            </tr>
          </thead>
        }
        row={(layer) => (
          <LayerRow
            key={layer.path ?? ""}
            layer={layer}
            name={layer.path === null ? NOT_TIED : (names.get(layer.path) ?? "")}
            devices={devices}
            longest={longest}
          />
        )}
      />
    </div>
  );
}
