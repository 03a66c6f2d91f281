import { expect, it } from "vitest";
import { objectPath, routeOf, withParams } from "./route.ts";

it.each([
  ["/", { page: "overview" }],
  ["/tasks", { page: "list", kind: "tasks" }],
  ["/tasks/default/a%20b", { page: "object", kind: "tasks", namespace: "default", name: "a b" }],
  ["/history/steps", { page: "history", tab: "steps" }],
  ["/history", { page: "history", tab: "search" }],
  ["/nothing", { page: "nowhere" }],
  ["/tasks/default", { page: "nowhere" }],
])("%s", (path, route) => expect(routeOf(path)).toEqual(route));

it("names an archived object by its uid, since its name may come again", () => {
  const row = { kind: "jobs", namespace: "n", name: "j", uid: "u1" };
  expect(objectPath(row)).toBe("/jobs/n/j");
  expect(objectPath({ ...row, archived: true })).toBe("/jobs/n/j?uid=u1");
});

it("changes some parameters and keeps the others", () => {
  expect(withParams("/tasks", "?state=failed&q=a", { q: undefined, sort: "name" })).toBe(
    "/tasks?state=failed&sort=name",
  );
  expect(withParams("/tasks", "?q=a", { q: "" })).toBe("/tasks");
});
