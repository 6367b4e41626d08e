/** No plain error is made in src/. */
import { errorsFromTable } from '../../eslint-rules/errors-from-table.js';
import { inFile, ruleTester } from './rule-tester.mjs';

ruleTester.run('errors-from-table', errorsFromTable, {
  valid: [
    inFile('src/http/app.ts', `throw new PlumblineError('invalid_json', 'the body is not JSON');`),
    inFile('src/http/app.ts', `try { f(); } catch (error) { throw error; }`),
    inFile('src/http/app.ts', `if (thrown instanceof RangeError) recover();`),
    inFile('src/errors.ts', `export class PlumblineError extends Error { constructor() { super('x'); } }`),
    inFile('src/http/app.test.ts', `throw new Error('planted');`),
    inFile('test/fault/nan.test.ts', `throw new Error('planted');`),
    inFile('scripts/build.mjs', `throw new Error('no compiler');`),
  ],
  invalid: [
    inFile('src/http/app.ts', `throw new Error('no');`, ['plain']),
    inFile('src/http/app.ts', `throw new TypeError('no');`, ['plain']),
    inFile('src/http/app.ts', `throw RangeError('no');`, ['plain']),
    inFile('src/http/app.ts', `const fault = new Error('no'); throw fault;`, ['plain']),
    inFile('src/http/app.ts', `new Promise((_, reject) => reject(new Error('no')));`, ['plain']),
    inFile('src/http/app.ts', `controller.abort(new DOMException('no', 'AbortError'));`, ['plain']),
    inFile('src/errors.ts', `throw new Error('no');`, ['plain']),
  ],
});
