// After the build: writes .gz and .br beside every text asset, and the licences of what was bundled.
import { readdirSync, readFileSync, writeFileSync, existsSync } from 'node:fs';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';

const folder = new URL('../static/', import.meta.url);

const licences = ['echarts', 'zrender', 'tslib', 'swagger-ui-dist'].map((name) => {
  const home = new URL(`node_modules/${name}/`, import.meta.url);
  const { version, license } = JSON.parse(readFileSync(new URL('package.json', home), 'utf8'));
  const texts = ['LICENSE', 'LICENSE.txt', 'NOTICE']
    .map((file) => new URL(file, home))
    .filter((file) => existsSync(file))
    .map((file) => readFileSync(file, 'utf8'));
  return [`${name} ${version} (${license})`, ...texts].join('\n\n');
});
writeFileSync(new URL('licences.txt', folder), licences.join(`\n\n${'='.repeat(80)}\n\n`));

for (const name of readdirSync(folder)) {
  if (!/\.(js|css|svg|txt)$/.test(name)) continue;
  const plain = readFileSync(new URL(name, folder));
  const brotli = brotliCompressSync(plain, {
    params: { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: plain.length },
  });
  writeFileSync(new URL(`${name}.gz`, folder), gzipSync(plain, { level: 9 }));
  writeFileSync(new URL(`${name}.br`, folder), brotli);
}
