import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";
import { fakeConsole } from "./test/fake.ts";

// Where the console's API is in development: a running `k8s4r up`, or made-up data when nothing is named.
const server = process.env.K8S4R_CONSOLE_URL;
const proxy = server ? { "/api": { target: server, changeOrigin: true, secure: false } } : undefined;

export default defineConfig({
  plugins: [react(), ...(server ? [] : [fakeConsole()])],
  server: { proxy },
  preview: { proxy },
  build: {
    target: ["chrome123", "firefox128", "safari17.5"],
    // dist keeps unbuilt.html, without which `go build` finds nothing to embed.
    emptyOutDir: false,
    // A chunk is a file: data: addresses would need a weaker Content-Security-Policy.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    manifest: "assets/manifest.json",
    // What is bundled asks for its licence to go along; scripts/licenses.mjs makes a page of it.
    license: { fileName: "assets/licenses.json" },
  },
});
