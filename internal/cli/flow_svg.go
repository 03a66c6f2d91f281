package cli

import (
	"fmt"
	"html"
	"strings"
	"unicode/utf8"

	"k8s4r.io/k8s4r/internal/core/flow/view"
)

// Measures of the picture, in pixels.
const (
	boxHeight  = 44
	boxMargin  = 12
	letter     = 7 // width of a character
	gapAcross  = 24
	gapDown    = 40
	svgMargin  = 16
	labelShift = 4
)

// place is the position of a box.
type place struct{ x, y, width int }

// renderSVG renders the steps in layers, each below all steps that it depends on.
func renderSVG(v flowView) string {
	places, width, height := v.layOutSteps()
	var b strings.Builder
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"12\">\n", width, height)
	fmt.Fprintf(&b, "<title>%s</title>\n", html.EscapeString(stripControl(v.Name+" "+v.Phase)))
	for i := range v.Steps {
		for _, t := range v.Steps[i].Targets {
			writeEdge(&b, places[t], places[i], edgeLabel(&v.Steps[i]))
		}
	}
	for i := range v.Steps {
		writeBox(&b, places[i], &v.Steps[i])
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// layOutSteps returns a position for each step, with the layers centered, and the size of the
// picture.
func (v flowView) layOutSteps() (places []place, width, height int) {
	places = make([]place, len(v.Steps))
	layers := v.stepLayers()
	widths := make([]int, len(layers))
	for n, layer := range layers {
		for _, i := range layer {
			s := &v.Steps[i]
			places[i] = place{widths[n], svgMargin + n*(boxHeight+gapDown), max(utf8.RuneCountInString(s.Name), utf8.RuneCountInString(stepFacts(s)))*letter + 2*boxMargin}
			widths[n] += places[i].width + gapAcross
		}
		widths[n] -= gapAcross
		width = max(width, widths[n])
	}
	for n, layer := range layers {
		for _, i := range layer {
			places[i].x += svgMargin + (width-widths[n])/2
		}
	}
	return places, width + 2*svgMargin, 2*svgMargin + len(layers)*(boxHeight+gapDown) - gapDown
}

// stepLayers groups the steps by the length of the longest path to them. Steps in a cycle are in
// the first layer.
func (v flowView) stepLayers() [][]int {
	depth := make([]int, len(v.Steps))
	most := -1
	for _, i := range v.orderSteps() {
		for _, t := range v.Steps[i].Targets {
			if t != i {
				depth[i] = max(depth[i], depth[t]+1)
			}
		}
		most = max(most, depth[i])
	}
	out := make([][]int, most+1)
	for i, n := range depth {
		out[n] = append(out[n], i)
	}
	return out
}

func writeEdge(b *strings.Builder, from, to place, label string) {
	x1, y1, x2, y2 := from.x+from.width/2, from.y+boxHeight, to.x+to.width/2, to.y
	middle := (y1 + y2) / 2
	fmt.Fprintf(b, "<path d=\"M%d %d C%d %d %d %d %d %d\" fill=\"none\" stroke=\"#888\"/>\n", x1, y1, x1, middle, x2, middle, x2, y2)
	fmt.Fprintf(b, "<path d=\"M%d %d l-4 -7 h8 z\" fill=\"#888\"/>\n", x2, y2)
	if label != "" {
		fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\" fill=\"#666\">%s</text>\n", (x1+x2)/2+labelShift, middle, html.EscapeString(label))
	}
}

func writeBox(b *strings.Builder, p place, s *view.Step) {
	fmt.Fprintf(b, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"6\" fill=\"%s\" stroke=\"#666\"/>\n", p.x, p.y, p.width, boxHeight, stepFill(s.State))
	fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\" font-weight=\"bold\">%s</text>\n", p.x+boxMargin, p.y+18, html.EscapeString(stripControl(s.Name)))
	fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\">%s</text>\n", p.x+boxMargin, p.y+35, html.EscapeString(stripControl(stepFacts(s))))
}
