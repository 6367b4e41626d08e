/**
 * A row of a family's law table: what is computed at a site of the forward pass, and who says so. A page of docs/ is made
 * from each table, and a test finds a row for every op of every plan of the family, and every row in a plan.
 */
export interface LawRow {
  readonly site: string;
  /** `op:first buffer`, for linear ops `linear:input>first output`, as in a printed plan (layer numbers as #). */
  readonly ops: readonly string[];
  /** The operation order; A(x) is x rounded to the activation type, where the family has one. */
  readonly law: string;
  readonly source: string;
}
