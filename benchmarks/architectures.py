"""Which networks of timm and Hugging Face get an exact posterior: small ones from a config, judged by autograd.

Every network runs in float64 with random weights. It is fitted ("diag", all Fisher vectors) and predicted ("linear"),
and both are compared with autograd's Jacobians, for exactly the parameters that `coverage()` says have a posterior.
Each network has a process of its own, with a limit of time and memory, so that none can end the others.
`python -m benchmarks.architectures` goes on where it was stopped.
"""

import argparse
import gc
import json
import os
import resource
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from benchmarks.architectures_page import page
from benchmarks.common import ROOT, command_line, read_results, write_page, write_results
from torch import Tensor, nn
from torch.func import functional_call

import infoform
from infoform.network.batches import Batch, read_inputs
from infoform.options import FitOptions

NAME = "architectures"
EXAMPLES, OUTPUTS, TOKENS = 4, 2, 7
NETWORKS = 1  # of each file of timm
SECONDS = 150  # of CPU time for one network
GIGABYTES = 8  # of address space for one network, beside what the process has
LARGEST = 60_000_000  # parameters
ALL_SECONDS = 15  # of CPU time for the default layers: where that took longer, all layers are not judged
EXACT = 1e-6  # largest relative difference (some models compute their norms in float32)
LOOSE = 1e-3
RATIO_BATCHES = 4  # of twice the examples, for the time of a fit


class Outputs(nn.Module):
    """A model whose outputs are those of the mean position."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        found = self.inner(*args, **kwargs)
        logits = found if isinstance(found, Tensor) else found.logits
        while logits.dim() > 2:
            logits = logits.mean(1)
        return logits[:, :OUTPUTS]


def judge(model: nn.Module, inputs: dict[str, Tensor] | tuple[Tensor, ...]) -> dict[str, Any]:
    """Fit and predict one network, and say how that compares with autograd."""
    model = Outputs(spread(model.double().eval()))
    batch = read_inputs(inputs, torch.device("cpu"))
    total = sum(parameter.numel() for parameter in model.parameters())
    found = {"parameters": total} | judge_layers(model, batch, inputs, layers=None)
    if found["status"] == "refused":
        return found
    if time.process_time() < ALL_SECONDS:
        found["all"] = judge_layers(model, batch, inputs, layers="all")
    found["ratio"] = fit_ratio(model, inputs)
    return found


def judge_layers(
    model: nn.Module, batch: Batch, inputs: dict[str, Tensor] | tuple[Tensor, ...], *, layers: str | None
) -> dict[str, Any]:
    """Fit and predict with the default layers, or with all, and compare with autograd."""
    total = sum(parameter.numel() for parameter in model.parameters())
    found: dict[str, Any] = {}
    laplace = infoform.Laplace(
        model,
        infoform.likelihoods.Regression(noise=1.0),
        structure="diag",
        layers=layers,
        fit_options=FitOptions(fisher="exact", novelty=False),
    )
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            laplace.fit(
                [inputs if isinstance(inputs, dict) else (*inputs, torch.zeros(EXAMPLES, OUTPUTS))], progress=False
            )
            with laplace._predictor().private() as predictor:
                _, covariance = predictor.linear(batch)
        except ValueError as error:
            return found | {"status": "refused", "reason": str(error)[:300]}
    rows = laplace.coverage()
    covered = [row.parameter for row in rows if row.covered]
    shapes = {row.parameter: row.shape for row in rows}
    found["share"] = sum(torch.Size(shapes[name]).numel() for name in covered) / total
    odd = laplace._fitted().fit.odd
    found["held"] = sorted({laplace._fitted().fit.unreached[name] for name in odd})[:3]
    found["held_layers"] = len(odd)
    found["warned"] = [
        str(one.message)[:200]
        for one in warned
        if "held fixed" in str(one.message) or "example at a" in str(one.message)
    ]
    found["error"], found["where"] = compare(laplace, model, batch, covered, covariance)
    found["status"] = "exact" if found["error"] < EXACT else "close" if found["error"] < LOOSE else "WRONG"
    return found


def fit_ratio(model: nn.Module, inputs: dict[str, Tensor] | tuple[Tensor, ...]) -> float:
    """Return the CPU time of a fit ("diag", sampled labels, without the self-check) in plain gradient passes."""
    if isinstance(inputs, dict):
        double: Any = {name: torch.cat([one, one]) for name, one in inputs.items()}
        loader = [double] * RATIO_BATCHES
    else:
        double = tuple(torch.cat([one, one]) for one in inputs)
        loader = [(*double, torch.zeros(2 * EXAMPLES, OUTPUTS))] * RATIO_BATCHES
    batch = read_inputs(double, torch.device("cpu"))
    options = FitOptions(novelty=False)
    likelihood = infoform.likelihoods.Regression(noise=1.0)

    def plain() -> None:
        for _ in range(RATIO_BATCHES):
            model(*batch.args, **batch.kwargs).square().mean().backward()
            model.zero_grad(set_to_none=True)

    def fit() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            laplace = infoform.Laplace(model, likelihood, structure="diag", fit_options=options)
            laplace.fit(loader, progress=False, check=False)

    seconds: dict[str, list[float]] = {"plain": [], "fit": []}
    for _ in range(2):
        for name, run in {"plain": plain, "fit": fit}.items():
            start = time.process_time()
            run()
            seconds[name].append(time.process_time() - start)
    return round(min(seconds["fit"][1:]) / min(seconds["plain"][1:]), 2)


def compare(
    laplace: infoform.Laplace, model: nn.Module, batch: Batch, covered: list[str], covariance: Tensor
) -> tuple[float, str]:
    """Return the largest relative difference from autograd, and where it is."""
    posterior = laplace.posterior()
    diagonals, variances = {}, {}
    for name, layer in posterior.layers.items():
        measured = laplace.curvature[name].diagonal
        assert measured is not None
        diagonals.update(laplace.layers[name].as_parameters(measured))
        variances.update(laplace.layers[name].as_parameters(layer.diagonal().reciprocal()))
    squares = {name: torch.zeros_like(diagonals[name]) for name in covered}
    state = {name: one.detach() for name, one in [*model.named_parameters(), *model.named_buffers()]}
    leaves = {name: state[name].clone().requires_grad_() for name in covered}
    worst, where = 0.0, ""
    for n in range(EXAMPLES):
        pair = [n, (n + 1) % EXAMPLES]
        args = [one[pair] for one in batch.args]
        kwargs = {name: one[pair] for name, one in batch.kwargs.items()}
        outputs = functional_call(model, state | leaves, tuple(args), kwargs)[0]
        rows: list[list[Tensor]] = []
        for index in range(OUTPUTS):
            gradients = torch.autograd.grad(outputs[index], list(leaves.values()), retain_graph=True, allow_unused=True)
            rows.append(
                [
                    torch.zeros_like(leaf) if one is None else one
                    for one, leaf in zip(gradients, leaves.values(), strict=True)
                ]
            )
        expected = torch.zeros(OUTPUTS, OUTPUTS, dtype=torch.float64)
        for place, name in enumerate(covered):
            jacobian = torch.stack([row[place].flatten() for row in rows])
            squares[name] += jacobian.square().sum(0).view_as(squares[name]) / EXAMPLES
            expected += (jacobian * variances[name].flatten()) @ jacobian.T
        error = float((covariance[n] - expected).norm() / expected.norm().clamp_min(1e-300))
        worst, where = max((worst, where), (error, "covariance"))
    for name in covered:
        scale = squares[name].norm()
        if scale > 1e-30:
            error = float((diagonals[name] - squares[name]).norm() / scale)
            worst, where = max((worst, where), (error, name))
    return worst, where


def spread(model: nn.Module) -> nn.Module:
    """Put random numbers where a new network has zeros or ones, so that every layer matters."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if (
                parameter.is_floating_point()
                and parameter.numel()
                and bool((parameter == parameter.flatten()[0]).all())
            ):
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.add_(0.1 * noise.to(parameter))
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is not None:
                module.running_mean.copy_(0.1 * torch.randn(module.running_mean.shape, generator=generator))
                module.running_var.copy_(0.5 + torch.rand(module.running_var.shape, generator=generator))
    return model


def timm_networks() -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """Give the smallest networks of every file of timm."""
    sys.path.insert(0, str(ROOT / ".venv" / "vision"))
    operators = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):  # the wheel's own operators are not loaded
        operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import timm

    for module in timm.list_modules():
        ranked = sorted(timm.list_models(module=module), key=_sort_key)
        ranked.sort(key=lambda name: name not in SMALLEST)  # stable
        for name in ranked[:NETWORKS]:
            yield f"timm/{name}", lambda name=name: timm_network(timm, name)


def _sort_key(name: str) -> tuple[int, int]:
    """Return a number that is small for names of small networks."""
    small = [
        "nano",
        "atto",
        "femto",
        "pico",
        "test",
        "tiny",
        "xxs",
        "zero",
        "_s0",
        "_t0",
        "mini",
        "small",
        "_b0",
        "050",
        "10",
        "18",
        "_s",
        "_t",
        "_xs",
    ]
    return next((place for place, part in enumerate(small) if part in name), len(small)), len(name)


SMALLEST = (  # of files where the names do not tell
    "dla46x_c",
    "dpn48b",
    "halonet_h1",
    "legacy_seresnet18",
    "levit_128s",
    "mobilenetv5_base",
    "res2next50",
    "resnest14d",
    "resnetv2_18",
    "skresnet18",
    "tresnet_m",
    "vit_srelpos_small_patch16_224",
    "samvit_base_patch16_224",
)
NARROW: dict[str, dict[str, Any]] = {  # options of networks that are too large as they are
    "mobilenetv5_base": {"channel_multiplier": 0.25},
    "nasnetalarge": {"num_features": 576, "stem_size": 24},
    "vgg11": {"mlp_ratio": 0.03},
}

SIZES: tuple[tuple[int | None, dict[str, Any]], ...] = (
    (64, {"img_size": 64, "embed_dim": 24, "depths": (1, 1, 1, 1), "num_heads": (1, 2, 2, 4), "window_size": 4}),
    (64, {"img_size": 64, "embed_dim": 48, "depth": 2, "num_heads": 2}),
    (64, {"depths": (1, 1, 1, 1), "dims": (8, 16, 24, 32)}),
    (64, {"depths": (1, 1, 1, 1), "embed_dims": (16, 32, 48, 64)}),
    (64, {"img_size": 64, "depth": 2}),
    (64, {"img_size": 64}),
    (64, {}),
    (128, {}),
    (None, {}),
)  # sides of the images and options, the first that the network takes


def timm_network(timm: Any, name: str) -> dict[str, Any]:
    last: Exception | None = None
    for size, options in SIZES:
        try:
            torch.manual_seed(0)
            model = timm.create_model(name, num_classes=OUTPUTS, **options, **NARROW.get(name, {}))
            if sum(parameter.numel() for parameter in model.parameters()) > LARGEST:
                return {"status": "not tried", "reason": f"more than {LARGEST:,} parameters"}
            side = size or model.default_cfg["input_size"][-1]
            if side > 300:
                return {"status": "not tried", "reason": f"images of {side} pixels"}
            x = torch.randn(EXAMPLES, 3, side, side, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
            with torch.no_grad():
                model.double().eval()(x[:2])
        except Exception as error:  # any of them means that the network is not made like this
            last = error
            continue
        return judge(model, (x,))
    return {"status": "not built", "reason": f"{type(last).__name__}: {last}"[:200]}


SMALL: dict[str, Any] = {
    "vocab_size": 99, "hidden_size": 32, "d_model": 32, "n_embd": 32, "dim": 32, "embed_dim": 32, "embedding_size": 16,
    "emb_dim": 32, "hidden_dim": 32, "d_embed": 32, "word_embed_proj_dim": 32, "n_embed": 32,
    "num_hidden_layers": 2, "num_layers": 2, "n_layer": 2, "n_layers": 2, "encoder_layers": 2, "decoder_layers": 2,
    "num_decoder_layers": 2, "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4,
    "num_key_value_heads": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "intermediate_size": 48, "ffn_dim": 48, "d_ff": 48,
    "n_inner": 48, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "d_inner": 48, "d_kv": 8, "head_dim": 8, "d_head": 8,
    "max_position_embeddings": 64, "n_positions": 64, "n_ctx": 64, "type_vocab_size": 2, "image_size": 32,
    "patch_size": 8, "num_local_experts": 4, "num_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 16, "q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4,
    "v_head_dim": 8, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "shared_expert_intermediate_size": 16,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "num_labels": OUTPUTS, "state_size": 4,
    "conv_dim": [16, 16],
    "conv_stride": [4, 4], "conv_kernel": [8, 8], "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2, "use_cache": False, "attn_implementation": "eager", "sliding_window": 4,
    "classifier_proj_size": 16, "attention_window": 4, "max_2d_position_embeddings": 64,
    "num_buckets": 8, "max_relative_positions": 16, "pooler_hidden_size": 32, "embedding_dim": 32, "ssm_state_size": 4,
    "mamba_num_heads": 4, "mamba_head_dim": 8, "time_step_rank": 4, "chunk_size": 4, "linear_num_key_heads": 2,
    "linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8, "num_block_records": 2,
    "axial_pos_shape": [4, 4], "axial_pos_embds_dim": [16, 16], "encoder_hidden_size": 32, "num_codebooks": 2,
    "decoder_start_token_id": 1,
}  # fmt: skip


ALWAYS = ("pad_token_id", "decoder_start_token_id")  # also where a config says nothing of it
MORE_LEFT = (
    "head_dim",
    "sliding_window",
    "d_kv",
    "dim",
    "attention_window",
    "patch_size",
    "chunk_size",
    "embedding_size",
)
FEWEST = (  # of the sizes, where the others do not go together
    "vocab_size",
    "num_hidden_layers",
    "num_layers",
    "n_layer",
    "n_layers",
    "encoder_layers",
    "decoder_layers",
    "num_decoder_layers",
    "max_position_embeddings",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
    "num_labels",
    "attn_implementation",
    "use_cache",
    "decoder_start_token_id",
)
FEWER = (
    *FEWEST,
    "hidden_size",
    "d_model",
    "n_embd",
    "num_attention_heads",
    "num_key_value_heads",
    "n_head",
    "num_heads",
    "intermediate_size",
    "num_local_experts",
    "num_experts",
    "n_routed_experts",
    "moe_intermediate_size",
)


def huggingface_networks() -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """Give every architecture that classifies texts, images, sounds or videos, or writes texts."""
    from transformers.models.auto import modeling_auto as auto

    tasks = {
        "text": auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
        "image": auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES,
        "audio": auto.MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES,
        "writing": auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    }
    seen: set[str] = set()
    for task, classes in tasks.items():
        for kind, name in classes.items():
            if task == "writing" and kind in seen:  # with another head alone
                continue
            seen.add(kind)
            first = name if isinstance(name, str) else name[0]
            yield (
                f"huggingface/{first}",
                lambda kind=kind, first=first, task=task: huggingface_network(kind, first, task),
            )


def huggingface_network(kind: str, name: str, task: str) -> dict[str, Any]:
    import transformers

    first: Exception | None = None
    for leave in ((), MORE_LEFT, tuple(set(SMALL) - set(FEWER)), tuple(set(SMALL) - set(FEWEST))):
        try:
            torch.manual_seed(0)
            config = transformers.AutoConfig.for_model(kind)
            shrink(config, set(leave))
            config._experts_implementation = "eager"  # others have no float64
            kind_of_model = getattr(transformers, name)
            if _parameters_without_memory(kind_of_model, config) > LARGEST:
                raise ValueError(f"more than {LARGEST:,} parameters")
            model = kind_of_model(config)
            if sum(parameter.numel() for parameter in model.parameters()) > LARGEST:
                raise ValueError(f"more than {LARGEST:,} parameters")
            inputs = huggingface_inputs(config, task)
            with torch.no_grad():
                Outputs(model.double().eval())(**{key: value[:2] for key, value in inputs.items()})
        except Exception as error:  # any of them means that the network is not made like this
            first = first or error
            continue
        return judge(model, inputs)
    return {"status": "not built", "reason": f"{type(first).__name__}: {first}"[:200]}


def _parameters_without_memory(kind_of_model: Any, config: Any) -> int:
    """Return the number of parameters, or 0 where a model cannot be made without memory."""
    try:
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in kind_of_model(config).parameters())
    except Exception:  # then it is counted when it is made
        return 0


def shrink(config: Any, leave: set[str]) -> None:
    """Make every size of a config, and of those in it, small."""
    for name, value in SMALL.items():
        if (name in ALWAYS or getattr(config, name, None) is not None) and name not in leave:
            try:
                setattr(config, name, value)
            except Exception:  # some are computed from others
                continue
    for name, value in list(vars(config).items()):
        if name in ("layer_types", "mlp_layer_types", "layers_block_type") and isinstance(value, list):
            kinds = list(dict.fromkeys(value))
            setattr(config, name, (kinds * 2)[:2])
        elif hasattr(value, "to_dict") and hasattr(value, "model_type"):
            shrink(value, leave)


def huggingface_inputs(config: Any, task: str) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    if task == "image":
        side = getattr(config, "image_size", 32)
        side = side if isinstance(side, int) else 32
        channels = getattr(config, "num_channels", 3)
        return {"pixel_values": torch.randn(EXAMPLES, channels, side, side, generator=generator, dtype=torch.float64)}
    if task == "audio":
        return {"input_values": torch.randn(EXAMPLES, 800, generator=generator, dtype=torch.float64)}
    tokens = torch.randint(3, 90, (EXAMPLES, TOKENS), generator=generator)
    if task == "text":
        tokens[:, -1] = 2
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


def in_own_process(run: Callable[[], dict[str, Any]], *, seconds: int) -> dict[str, Any]:
    """Return what `run` finds in a process of its own, or what ended that."""
    gc.collect()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        try:
            with time_limit(seconds):
                found = run()
        except BaseException as error:
            found = {"status": "failed", "reason": f"{type(error).__name__}: {error}"[:300]}
        os.write(writing, json.dumps(found).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    _, status, used = os.wait4(child, 0)
    cost = {"seconds": round(used.ru_utime + used.ru_stime, 1), "megabytes": used.ru_maxrss // 1024}
    if not said:
        code = os.waitstatus_to_exitcode(status)
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return {"status": "ended the process", "reason": how} | cost
    return json.loads(said) | cost


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TimeoutError(f"more than {seconds} s")

    with open("/proc/self/statm") as statm:
        present = int(statm.read().split()[0]) * resource.getpagesize()
    most = present + GIGABYTES * 2**30
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument(
        "--again", default="", help="statuses that are tried once more, with commas between them, or 'all'"
    )
    parser.add_argument("--seconds", type=int, default=SECONDS, help="of CPU time for one network")
    parser.add_argument("--library", default="", choices=("", "timm", "huggingface"), help="each has a file of its own")
    options = parser.parse_args()
    if options.page:
        write_page("networks", page(examples=EXAMPLES, outputs=OUTPUTS, largest=LARGEST))
        return
    for library in ("huggingface", "timm"):
        if options.library in ("", library):
            measure(library, options)


def measure(library: str, options: argparse.Namespace) -> None:
    """Try the networks of a library that have not been tried."""
    file = f"{NAME}_{library}"
    results: dict[str, Any] = read_results(file, empty={"networks": {}})
    networks = results["networks"]
    every = dict({"timm": timm_networks, "huggingface": huggingface_networks}[library]())
    results["planned"] = len(every)
    for name, run in every.items():
        status = networks.get(name, {}).get("status", "")
        if options.only not in name or (status and status not in options.again.split(",") and options.again != "all"):
            continue
        networks[name] = in_own_process(run, seconds=options.seconds)
        one = networks[name]
        write_results(file, results)
        print(
            name,
            one["status"],
            one.get("error"),
            one.get("share"),
            one.get("ratio"),
            one.get("reason", ""),
            one.get("held", ""),
            flush=True,
        )


if __name__ == "__main__":
    main()
