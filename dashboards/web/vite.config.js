// Bundles src/ into ../static: hashed file names (served as immutable), a manifest that dashboards/gonogo_dashboards/kit/assets.py reads, no inline code.
import { defineConfig } from 'vite';

export default defineConfig({
  base: '/static/',
  publicDir: 'public',
  build: {
    outDir: '../static',
    emptyOutDir: true,
    manifest: 'manifest.json',
    modulePreload: false, // its polyfill and hints are written for vite's own index.html, which we don't have
    assetsInlineLimit: 0, // no data: URLs in the style sheet
    chunkSizeWarningLimit: 1600, // swagger-ui, which only /docs loads
    rollupOptions: {
      input: { main: 'src/main.js', docs: 'src/docs.js' },
      output: {
        entryFileNames: '[name]-[hash].js',
        chunkFileNames: '[name]-[hash].js',
        assetFileNames: '[name]-[hash][extname]',
      },
    },
  },
});
