"""KFAC: one Kronecker product a layer, by eigenvectors or by Cholesky factors."""
