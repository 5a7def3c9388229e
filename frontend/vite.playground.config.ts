import { defineConfig } from "vite";

import { playground } from "./playground/server";

export default defineConfig({
  appType: "custom",
  plugins: [playground()],
  server: { host: "127.0.0.1" },
});
