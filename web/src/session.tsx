import { createContext, useContext } from "react";
import type { Me } from "./api.ts";

/** Session is the signed-in user. */
export const Session = createContext<Me>({
  user: "",
  groups: [],
  namespaces: [],
  version: "",
  archive: false,
  position: "",
});

export const useSession = () => useContext(Session);
