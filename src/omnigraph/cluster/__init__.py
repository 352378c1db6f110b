"""The cluster control plane: declared graphs, the ledger of what is applied, plan, apply and serving."""
