"""On the device: an exported network with its uncertainty, run by onnxruntime and numpy alone.

    python examples/onnx_on_device.py model.onnx inputs.npy

`model.onnx` is written on another machine by `laplace.export("model.onnx")`. Neither torch nor infoform is needed here.
Without arguments the script asks infoform for a small file to show.
"""

import json
import subprocess
import sys

import numpy as np
import onnxruntime

MAKE = """
import numpy, torch, infoform
x = torch.randn(300, 6)
y = (x[:, :3] + torch.randn(300, 3)).argmax(1)
model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
laplace = infoform.Laplace(model, "classification", layers="last").fit([(x[:200], y[:200])], progress=False)
laplace.calibrate_novelty([x[200:]], progress=False).calibrate_conformal([(x[200:], y[200:])], progress=False)
laplace.export("model.onnx", example=x)
numpy.save("inputs.npy", torch.cat([x[:3], 50 * x[:1]]).numpy())
"""
before = set(sys.modules)
if len(sys.argv) != 3:
    subprocess.run([sys.executable, "-W", "ignore", "-c", MAKE], check=True)
path, data = sys.argv[1:] if len(sys.argv) == 3 else ("model.onnx", "inputs.npy")

session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
manifest = json.loads(session.get_modelmeta().custom_metadata_map["infoform"])
names = list(manifest["outputs"])
found = dict(zip(names, session.run(names, {session.get_inputs()[0].name: np.load(data)}), strict=True))

limit = manifest["thresholds"]["novelty"]["value"]
for probs, novelty, inside in zip(found["probs"], found["novelty"], found["set"], strict=True):
    classes = np.flatnonzero(inside).tolist()
    verdict = "unlike the training data: ask a person" if novelty > limit else f"one of {classes}"
    print(f"class {probs.argmax()} with {probs.max():.0%}, novelty {novelty:.2f}: {verdict}")
assert "torch" not in set(sys.modules) - before  # nothing here has asked for it
