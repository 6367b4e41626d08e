/** The rules of this repository, as an ESLint plugin named `plumbline`. */
import { errorsFromTable } from './errors-from-table.js';
import { noFamilyNames } from './no-family-names.js';
import { roomImports } from './room-imports.js';

export default {
  meta: { name: 'plumbline' },
  rules: {
    'errors-from-table': errorsFromTable,
    'no-family-names': noFamilyNames,
    'room-imports': roomImports,
  },
};
