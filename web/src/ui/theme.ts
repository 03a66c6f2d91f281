// Light, dark, or the system's theme. The choice is stored in this browser.
import { useState } from "react";

export type Theme = "system" | "light" | "dark";
const key = "k8s4r-theme";
const themes: Theme[] = ["system", "light", "dark"];

function stored(): Theme {
  return themes.find((theme) => theme === localStorage.getItem(key)) ?? "system";
}

export function applyTheme(theme: Theme = stored()) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

export function useTheme(): [Theme, () => void] {
  const [theme, setTheme] = useState(stored);
  const next = () => {
    const now = themes[(themes.indexOf(theme) + 1) % themes.length] as Theme;
    localStorage.setItem(key, now);
    applyTheme(now);
    setTheme(now);
  };
  return [theme, next];
}

/** cssColor returns a variable of the stylesheet in the current theme, as a color for a canvas. */
export function cssColor(variable: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${variable})`;
  document.body.append(probe);
  const color = getComputedStyle(probe).color;
  probe.remove();
  return color;
}
