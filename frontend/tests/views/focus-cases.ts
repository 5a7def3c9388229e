import type { Focus } from "../../src/views/shared/focus";

export const NO_FOCUS: Focus = { hovered: null, category: null };
