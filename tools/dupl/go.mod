module k8s4r.io/k8s4r/tools/dupl

go 1.26.0

tool github.com/mibk/dupl

require github.com/mibk/dupl v1.1.0 // indirect
