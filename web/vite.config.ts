/**
 * How the dashboard is built and, by `npm run dev`, served with hot reload against a running control plane, the one at
 * `SVC_API_URL`. Addresses in what is built are relative: under which path it is served says `index.html`'s base.
 */
import tailwind from "@tailwindcss/vite"
import react from "@vitejs/plugin-react"
import { defineConfig } from "vite"

const api = process.env["SVC_API_URL"] ?? "http://127.0.0.1:8787"

export default defineConfig(({ command }) => ({
  root: import.meta.dirname,
  base: command === "serve" ? "/app/" : "./",
  plugins: [react(), tailwind()],
  worker: { format: "es" as const },
  build: { target: "es2023", assetsInlineLimit: 0, reportCompressedSize: false },
  server: {
    host: "127.0.0.1",
    port: 5199,
    // The control plane answers for its own host names only.
    proxy: Object.fromEntries(
      ["/v1", "/sign-in", "/account", "/docs"].map((path) => [path, { target: api, changeOrigin: true }])
    )
  }
}))
