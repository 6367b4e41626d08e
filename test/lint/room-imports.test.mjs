/** The import direction between rooms is held. */
import { roomImports } from '../../eslint-rules/room-imports.js';
import { inFile, ruleTester } from './rule-tester.mjs';

ruleTester.run('room-imports', roomImports, {
  valid: [
    inFile('src/http/server.ts', `import { toChunk } from '../api/openai/chat.js';`),
    inFile('src/http/server.ts', `import { log } from '../observe/log.js';`),
    inFile('src/engine/model.ts', `import type { Phase } from './plan/phase.js';`),
    inFile('src/engine/plan/key.ts', `import { PlumblineError } from '../../errors.js';`),
    inFile('src/sessions/bank.ts', `import { settings } from '../config.js';`),
    inFile('src/sample/distribution.ts', `import * as fs from 'node:fs'; import pino from 'pino';`),
    inFile('src/index.ts', `export * from './cli/main.js'; export * from './observe/log.js';`),
    inFile('src/families/qwen/layers.ts', `import { planBuilder } from '../plan-builder.js';`),
    inFile('src/families/qwen/layers/moe.ts', `import { read } from '../config.js';`),
    inFile('src/families/registry.ts', `import { qwen } from './qwen/index.js';`),
    inFile('src/engine/pool.test.ts', `import { fixture } from '../../test/support/fixture.js';`),
    inFile('src/engine/wasm.ts', `new Worker(new URL('./worker.js', import.meta.url));`),
    inFile('src/engine/wasm.ts', `new URL('../../wasm/kernels.wasm', import.meta.url);`),
    inFile('test/e2e/serve.test.ts', `import { main } from '../../src/cli/main.js';`),
    inFile('bench/decode.ts', `import { main } from '../src/cli/main.js';`),
  ],
  invalid: [
    inFile('src/api/openai/chat.ts', `import { app } from '../../http/app.js';`, ['up']),
    inFile('src/engine/model.ts', `import type { Qwen } from '../families/qwen/config.js';`, ['up']),
    inFile('src/engine/model.ts', `export * from '../families/registry.js';`, ['up']),
    inFile('src/engine/model.ts', `export { qwen } from '../families/registry.js';`, ['up']),
    inFile('src/weights/hub.ts', `const { load } = await import('../engine/load.js');`, ['up']),
    inFile('src/observe/log.ts', `type State = import('../sessions/bank.js').State;`, ['up']),
    inFile('src/numerics/exp.ts', `new Worker(new URL('../engine/worker.js', import.meta.url));`, ['up']),
    inFile('src/errors.ts', `import { log } from './observe/log.js';`, ['up']),
    inFile('src/config.ts', `import { log } from './observe/log.js';`, ['up']),
    inFile('src/sample/validity.test.ts', `import { loop } from '../generate/loop.js';`, ['up']),
    inFile('src/families/qwen/layers.ts', `import { mla } from '../deepseek-v4/layers.js';`, ['family']),
    inFile('src/families/qwen/layers.ts', `import { mla } from '../glm5/deep/layers.js';`, ['family']),
    inFile('src/engine/model.ts', `import { x } from '../util/x.js';`, ['unknownRoom']),
    inFile('src/util/x.ts', `export const x = 1;`, ['unknownRoom']),
    inFile('src/helper.ts', `export const x = 1;`, ['unknownRoom']),
    inFile('src/engine/model.ts', `import { x } from '../index.js';`, ['unknownRoom']),
    inFile('src/engine/model.ts', `import { x } from '../../test/support/x.js';`, ['outside']),
  ],
});
