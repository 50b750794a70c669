// Owners and what they own, as a graph from the top down.
import cytoscape from "./vendor/cytoscape.js";
import dagre from "./vendor/cytoscape-dagre.js";

dagre(cytoscape);

const COLOURS = { Current: "--bar-converged", InProgress: "--bar-progressing", Failed: "--bar-degraded", Terminating: "--bar-held" };

function elementsOf(node, above, found) {
  found.push({ data: { id: node.uid, label: `${node.kind}\n${node.name}`, status: node.status } });
  if (above) found.push({ data: { id: `${above}-${node.uid}`, source: above, target: node.uid } });
  for (const child of node.children) elementsOf(child, node.uid, found);
  return found;
}

// Draws it into a box; what was drawn there before is replaced. Gives what has `destroy`.
export function draw(box, root, before) {
  before?.destroy();
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  return cytoscape({
    container: box,
    elements: elementsOf(root, "", []),
    layout: { name: "dagre", rankDir: "LR", nodeSep: 14, rankSep: 60 },
    userZoomingEnabled: false,
    autoungrabify: true,
    style: [
      {
        selector: "node",
        style: {
          shape: "round-rectangle", width: 170, height: 40, label: "data(label)", "text-wrap": "ellipsis", "text-max-width": 160,
          "text-valign": "center", "font-size": 11, color: colour("--text"), "background-color": colour("--panel"), "border-width": 2,
          "border-color": (node) => colour(COLOURS[node.data("status")] || "--bar-unknown"),
        },
      },
      { selector: "edge", style: { width: 1.5, "line-color": colour("--line"), "curve-style": "taxi", "taxi-direction": "rightward" } },
    ],
  });
}
