// Browsers have it since 2024; the Node that runs the tests may be older.
Map.groupBy ??= (items, keyOf) => {
  const groups = new Map();
  for (const item of items) groups.set(keyOf(item, 0), [...(groups.get(keyOf(item, 0)) ?? []), item]);
  return groups;
};
