import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./app.tsx";
import { joinTabs } from "./credential.ts";
import { applyTheme } from "./ui/theme.ts";
import "./styles/base.css";
import "./styles/pieces.css";
import "./styles/pages.css";

applyTheme();
joinTabs();
const root = document.getElementById("root");
if (!root) throw new Error("index.html has no #root");
createRoot(root).render(
  <StrictMode>
    <App />
  </StrictMode>,
);
