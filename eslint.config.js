/**
 * Typed rules for the sources, the repository's own rules (eslint-rules/) for its structure, and plain rules for the
 * scripts. wasm/ holds AssemblyScript, which TypeScript's checker does not understand: its own compiler judges it.
 */
import js from '@eslint/js';
import { defineConfig, globalIgnores } from 'eslint/config';
import tseslint from 'typescript-eslint';
import plumbline from './eslint-rules/index.js';

const nodeGlobals = Object.fromEntries(
  ['Buffer', 'URL', 'AbortController', 'AbortSignal', 'console', 'fetch', 'process', 'setTimeout', 'clearTimeout']
    .concat(['performance', 'setInterval', 'clearInterval', 'structuredClone', 'TextDecoder', 'TextEncoder'])
    .map((name) => [name, 'readonly']),
);

const everywhere = {
  eqeqeq: ['error', 'always', { null: 'ignore' }],
  'no-restricted-syntax': [
    'error',
    {
      selector:
        'CallExpression[callee.object.name=/^(test|it|describe|suite)$/][callee.property.name=/^(skip|todo|only)$/]',
      message: 'a test runs or does not exist.',
    },
  ],
  // Formats and wire texts are checked for control characters on purpose.
  'no-control-regex': 'off',
  'no-var': 'error',
  'object-shorthand': 'error',
  'prefer-const': 'error',
};

export default defineConfig(
  globalIgnores(['dist/', 'build/', 'coverage/', 'models/', 'training/', 'native/', 'wasm/', 'test/fixtures/']),
  { linterOptions: { reportUnusedDisableDirectives: 'error' } },
  js.configs.recommended,
  { rules: everywhere },
  {
    files: ['**/*.js', '**/*.mjs'],
    languageOptions: { globals: nodeGlobals },
  },
  {
    files: ['**/*.ts'],
    extends: [tseslint.configs.recommendedTypeChecked],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    plugins: { plumbline },
    rules: {
      '@typescript-eslint/consistent-type-imports': ['error', { fixStyle: 'inline-type-imports' }],
      '@typescript-eslint/no-explicit-any': 'error',
      '@typescript-eslint/no-floating-promises': [
        'error',
        {
          allowForKnownSafeCalls: [
            { from: 'package', package: 'node:test', name: ['test', 'it', 'describe', 'suite', 'default'] },
          ],
        },
      ],
      '@typescript-eslint/no-import-type-side-effects': 'error',
      '@typescript-eslint/no-misused-promises': 'error',
      '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_', varsIgnorePattern: '^_' }],
      '@typescript-eslint/only-throw-error': 'error',
      '@typescript-eslint/prefer-nullish-coalescing': 'error',
      '@typescript-eslint/prefer-readonly': 'error',
      // An interface may promise an asynchronous answer that one of its implementations has at once.
      '@typescript-eslint/require-await': 'off',
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true, allowBoolean: true }],
      '@typescript-eslint/return-await': ['error', 'error-handling-correctness-only'],
      '@typescript-eslint/switch-exhaustiveness-check': ['error', { considerDefaultExhaustiveForUnions: true }],
      'plumbline/errors-from-table': 'error',
      'plumbline/no-family-names': 'error',
      'plumbline/room-imports': 'error',
    },
  },
  {
    files: ['src/**/*.ts'],
    ignores: ['src/**/*.test.ts'],
    rules: {
      'max-lines': ['error', { max: 350, skipBlankLines: true, skipComments: true }],
      'no-console': 'error',
    },
  },
  {
    // The terminal is what the command line writes to.
    files: ['src/cli/**/*.ts', 'bench/**/*.ts', 'test/**/*.ts'],
    rules: { 'no-console': 'off' },
  },
  {
    // Tests look into JSON as it came over the wire.
    files: ['**/*.test.ts', 'test/**/*.ts'],
    rules: {
      '@typescript-eslint/no-unsafe-argument': 'off',
      '@typescript-eslint/no-unsafe-assignment': 'off',
      '@typescript-eslint/no-unsafe-member-access': 'off',
      '@typescript-eslint/no-unsafe-call': 'off',
      '@typescript-eslint/no-unsafe-return': 'off',
    },
  },
);
