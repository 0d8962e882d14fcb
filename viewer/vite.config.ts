import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";

// The page is served from anywhere, a bucket's folder too: every address is relative.
export default defineConfig({
  base: "./",
  plugins: [svelte()],
  build: {
    outDir: "../src/rollscope/viewer/static",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0, // the Content-Security-Policy allows no inline anything
    modulePreload: { polyfill: false },
  },
  server: { proxy: { "/api": process.env["ROLLSCOPE_API"] ?? "http://127.0.0.1:7373" } },
  // A busy machine must not fail a test.
  test: { environment: "jsdom", include: ["test/**/*.test.ts"], testTimeout: 120_000, hookTimeout: 120_000 },
  ...(process.env["VITEST"] ? { resolve: { conditions: ["browser"] } } : {}),
});
