/** Shared rooms name no model family. */
import { noFamilyNames } from '../../eslint-rules/no-family-names.js';
import { inFile, ruleTester } from './rule-tester.mjs';

ruleTester.run('no-family-names', noFamilyNames, {
  valid: [
    inFile('src/families/qwen/config.ts', `export const qwen = 'qwen4_exp';`),
    inFile('src/sample/laws/mtplx.ts', `export const source = 'qwen';`),
    inFile('src/engine/model.ts', `// as Qwen does it\nexport const law = 'mtplx';`),
    inFile('src/engine/model.test.ts', `const family = 'qwen4_exp';`),
    inFile('src/cli/serve.ts', `program.option('--model <dir>', 'a Qwen or GLM checkpoint');`),
    inFile('src/generate/loop.ts', `const policy = model.laws.invalidRow;`),
    inFile('test/golden/run.ts', `const deepseek = 1;`),
  ],
  invalid: [
    inFile('src/engine/model.ts', `if (family === 'qwen4_exp') go();`, ['name']),
    inFile('src/generate/loop.ts', `const isDeepSeek = true;`, ['name']),
    inFile('src/generate/loop.ts', `laws.glm5();`, ['name']),
    inFile('src/generate/loop.ts', `class A { #qwenState = 1; }`, ['name']),
    inFile('src/chat/parse.ts', 'const a = `${x} for qwen`;', ['name']),
    inFile('src/weights/map.ts', `const a = /^glm/;`, ['name']),
    inFile('src/engine/model.ts', `type Family = 'deepseek_v4';`, ['name']),
    inFile('src/engine/model.ts', `import { config } from '../families/qwen/config.js';`, ['name']),
    inFile('src/cli/serve.ts', `const qwenFlags = 1;`, ['name']),
    inFile('src/chat/glm-tools.ts', `export const a = 1;`, ['name']),
  ],
});
