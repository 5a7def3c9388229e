import type { Focus } from "../../src/views/shared/context";

export const NO_FOCUS: Focus = { hovered: null, category: null };
