"""infoform beside other packages, one file each; none of them is needed, or imported, unless its file is.

infoform.integrations.sklearn       InfClassifier, InfRegressor
infoform.integrations.lightning     LaplaceCallback
infoform.integrations.huggingface   laplace_of_trainer
infoform.integrations.tables        to_pandas
infoform.integrations.tensorboard   log_prediction
"""
