"""infoform together with other packages, one module for each; a package is imported only with its module.

| module | names |
|---|---|
| `infoform.integrations.sklearn` | `InfClassifier`, `InfRegressor` |
| `infoform.integrations.lightning` | `LaplaceCallback` |
| `infoform.integrations.huggingface` | `laplace_of_trainer` |
| `infoform.integrations.peft` | `save_samples` |
| `infoform.integrations.hub` | `HubLaplace` |
| `infoform.integrations.mlflow` | `LaplaceModel`, `log_laplace` |
| `infoform.integrations.tables` | `to_pandas` |
| `infoform.integrations.tensorboard` | `log_prediction` |
"""
