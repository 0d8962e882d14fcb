/** Columns of rollouts, by what the page does with them. What is said about each comes from the schema. */
import { type Column, FACETS as ALL, ROW } from "../api/columns";
import type { RolloutRow } from "../api/types";

/** The column that a key of the query language asks for. */
export const BY_KEY: ReadonlyMap<string, Column<keyof RolloutRow>> = new Map(ROW.map((column) => [column.key, column]));

/** Keys whose values stand beside a list, counted; project and run are chosen above it. */
export const FACETS = ALL.filter((key) => key !== "project" && key !== "run");

const SCALARS = ["number", "time", "bool", "equal", "contains"];

/** Has it one value, which can be compared and sorted by? */
export const isScalar = (column: Column): boolean => SCALARS.includes(column.kind);

/** A name as people read it. */
export const words = (name: string): string => name.replaceAll("_", " ");
