# Everything sets itself up: `make demo` and `make test` need Python 3.11 or later, as the pinned versions do.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PEERS := .venv-peers
VISION := $(VENV)/vision

export OMP_WAIT_POLICY = PASSIVE

# `make test JOBS=2 COVERAGE=report`: in two processes that share the tests (tests/in_parts.py); with the shares of lines
# and branches of src/infoform that they run (benchmarks/trust/line_coverage.py). `COVERAGE=1` fails where these are too low
JOBS ?= 1
COVERAGE ?=
COVERED = $(if $(COVERAGE),coverage run --parallel-mode -m )
IN_PARTS = $(if $(filter-out 1,$(JOBS)),$(BIN)/python tests/in_parts.py $(JOBS) )

.PHONY: demo test coverage vision lint types docs wheel installed bench trust trust-quick clean

demo: $(READY)
	$(BIN)/python -m infoform.demo --out out/demo

test: $(READY) vision
	mkdir -p out
	rm -f out/coverage.data*
	$(IN_PARTS)$(BIN)/python -m $(COVERED)pytest
	$(if $(COVERAGE),$(BIN)/python -m coverage combine --quiet)
	$(if $(COVERAGE),$(BIN)/python -m coverage json --quiet -o out/coverage.json)
	$(if $(COVERAGE),$(BIN)/python -m benchmarks.trust.line_coverage out/coverage.json $(filter report,$(COVERAGE)))

coverage:
	$(MAKE) test COVERAGE=1

# what tests/integrations/test_vision.py takes its networks from: without what they need, which would be another torch
vision: $(VISION)/.ready

$(VISION)/.ready: $(READY)
	rm -rf $(VISION)
	$(BIN)/python -m pip install --quiet --no-deps --target $(VISION) torchvision==0.28.0 timm==1.0.29
	touch $@

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

# to out/site; a warning is an error
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

wheel: $(READY)
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -c 'import glob, zipfile; assert "infoform/py.typed" in zipfile.ZipFile(glob.glob("dist/*.whl")[0]).namelist()'

# wheel and sdist, each in an environment with nothing but its core dependencies
installed: wheel
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python .ci/installed.py \
		"$$(ls -t dist/*.whl | head -n 1)" "$$(ls -t dist/*.tar.gz | head -n 1)"

# the peers have an environment of their own; the torchvision that they bring does not import beside this torch, and
# pytorch-ood finds one in a folder of its own, after benchmarks/novelty/peers.py has prepared for it
bench: $(PEERS)/.ready
	$(PEERS)/bin/python -m benchmarks.speed --missing

$(PEERS)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --constraint constraints.txt torch
	$(PEERS)/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[metrics,peers]'
	$(PEERS)/bin/python -m pip uninstall --quiet --yes torchvision
	$(PEERS)/bin/python -m pip install --quiet --no-deps --target $(PEERS)/vision torchvision==0.28.0
	touch $@

# the campaign of docs/trust.md: hours; a stopped run goes on
trust: $(READY)
	$(BIN)/python -m benchmarks.trust

trust-quick: $(READY)
	$(BIN)/python -m benchmarks.trust --quick

clean:
	rm -rf $(VENV) $(PEERS) dist build out .mypy_cache .pytest_cache .ruff_cache

# torch comes first and alone, so that no other package can bring another one in
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("the versions in constraints.txt need Python 3.11 or later, got " + sys.version) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@
