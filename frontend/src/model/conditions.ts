/** What is different from the recorded run in a what-if question; an empty text means: as recorded. */

export const CONDITIONS = ["batch_size", "capacity", "freeze", "unfreeze", "optimizer", "precision"] as const;
export type ConditionName = (typeof CONDITIONS)[number];
export type Conditions = Readonly<Record<ConditionName, string>>;

export const AS_RECORDED: Conditions = { batch_size: "", capacity: "", freeze: "", unfreeze: "", optimizer: "", precision: "" };

/** Optimizers by name, `momentum` being SGD with momentum. */
export const OPTIMIZERS = [
  "sgd",
  "momentum",
  "rmsprop",
  "adagrad",
  "lion",
  "adam",
  "adamw",
  "adamax",
  "nadam",
  "adadelta",
  "ftrl",
] as const;
export const PRECISIONS = ["float32", "mixed_float16", "mixed_bfloat16"] as const;

export const isAsRecorded = (conditions: Conditions): boolean => CONDITIONS.every((name) => conditions[name] === "");

/** Those that differ from the recorded run, as parameters of a request. */
export const changedConditions = (conditions: Conditions): [ConditionName, string][] =>
  CONDITIONS.flatMap((name) => (conditions[name] === "" ? [] : [[name, conditions[name]] as [ConditionName, string]]));
