"""MindCluster's dynamic vNPU on Ascend 310P: slices by template and whole chips, handed over by chip and template."""
