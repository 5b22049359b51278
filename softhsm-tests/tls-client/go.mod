module externalsigner

go 1.19
