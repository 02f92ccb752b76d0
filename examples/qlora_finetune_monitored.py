"""Fine-tunes a language model with LoRA, in 4 bits where bitsandbytes runs, and records all of it.

    python examples/qlora_finetune_monitored.py --model-config tiny-llama --data examples/qlora_sample.jsonl

`--model-config` is the folder of a model, or the name of a tiny configuration that starts from random
weights. `--data` is a file of JSON lines with a `text`, or with a `prompt` and a `completion`. Nothing is
downloaded. Needs: pip install 'stepscope[transformers]' peft
"""

import argparse
import importlib.util
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

SAMPLE = Path(__file__).with_name("qlora_sample.jsonl")
LOOPBACK = "127.0.0.1"
TINY: dict[str, dict[str, Any]] = {
    "tiny-llama": {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
    },
    "tiny-gpt2": {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 512},
}


def arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--model-config", default="tiny-llama", help=f"the folder of a model, or one of {', '.join(TINY)}")
    add("--data", type=Path, default=SAMPLE, help="a file of JSON lines")
    add("--output-dir", type=Path, default=Path("qlora-output"), help="where the adapter is saved")
    add("--gpu-index", type=int, default=0, help="the GPU to train on and to watch; 0 is cuda:0")
    add("--monitoring-log-dir", type=Path, help="writes gpu_metrics_*.jsonl and training_metrics_*.jsonl")
    add("--enable-prometheus", action="store_true", help="serves the figures for Prometheus")
    add("--prometheus-port", type=int, default=8000)
    add("--run", default="qlora", help="the name of the run")
    add("--max-steps", type=int, default=-1, help="ends the training after this many steps")
    add("--epochs", type=float, default=1.0)
    add("--batch-size", type=int, default=4)
    add("--gradient-accumulation-steps", type=int, default=1)
    add("--learning-rate", type=float, default=2e-4)
    add("--lora-rank", type=int, default=8)
    add("--max-length", type=int, default=256, help="the most tokens of an example")
    return parser.parse_args()


def read_texts(path: Path) -> list[str]:
    """The texts of a file of JSON lines; a wrong line ends the program, which names it."""
    texts = []
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        sys.exit(f"{path} cannot be read: {error.strerror}.")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            texts.append(row["text"] if "text" in row else row["prompt"] + row["completion"])
        except (ValueError, KeyError, TypeError):
            sys.exit(f"{path}, line {number}: expected a text, or a prompt and a completion, as JSON.")
    if not texts:
        sys.exit(f"{path} has no lines.")
    return texts


def byte_tokenizer(transformers: Any) -> Any:
    """A tokenizer whose tokens are the bytes of a text: it needs no file."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    special = {"pad_token": "<pad>", "eos_token": "</s>"}
    tokens = [*special.values(), *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def why_not_4_bit(torch: Any) -> str | None:
    """Why the model is not quantised to 4 bits; None if it is."""
    if not torch.cuda.is_available():
        return "there is no CUDA device"
    if importlib.util.find_spec("bitsandbytes") is None:
        return "bitsandbytes is not installed (pip install bitsandbytes)"
    return None


def load(choice: str, gpu_index: int) -> tuple[Any, Any]:
    """The model with LoRA's base weights, and its tokenizer."""
    import torch
    import transformers

    reason = why_not_4_bit(torch)
    print("4 bits: on" if reason is None else f"4 bits: off, plain LoRA is used: {reason}.")
    options: dict[str, Any] = {}
    if reason is None:
        quantisation = transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16
        )
        options = {"quantization_config": quantisation, "device_map": {"": gpu_index}}
    if choice in TINY:
        tokenizer = byte_tokenizer(transformers)
        special = {"vocab_size": len(tokenizer), "bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 0}
        config = transformers.AutoConfig.for_model(**TINY[choice], **special)
        model = transformers.AutoModelForCausalLM.from_config(config)
        if options:  # weights are quantised when they are loaded
            with tempfile.TemporaryDirectory() as folder:
                model.save_pretrained(folder)
                model = transformers.AutoModelForCausalLM.from_pretrained(folder, **options)
        return model, tokenizer
    if not (Path(choice) / "config.json").is_file():
        sys.exit(f"--model-config is {choice}: expected the folder of a model, or one of {', '.join(TINY)}.")
    model = transformers.AutoModelForCausalLM.from_pretrained(choice, local_files_only=True, **options)
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(choice, local_files_only=True)
    except (OSError, ValueError):
        print("The folder has no tokenizer; bytes are used as tokens.")
        tokenizer = byte_tokenizer(transformers)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return model, tokenizer


def with_lora(model: Any, rank: int) -> Any:
    """The model with trainable adapters in its linear layers; all else is frozen."""
    import peft

    if getattr(model, "is_loaded_in_4bit", False):
        model = peft.prepare_model_for_kbit_training(model)
    config = peft.LoraConfig(
        r=rank, lora_alpha=2 * rank, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    return peft.get_peft_model(model, config)


def prometheus_callback(port: int) -> Any:
    """Serves what the trainer logs as gauges; None if that is not possible."""
    try:
        import prometheus_client
    except ImportError:
        print("Prometheus: off. Install its client with: pip install prometheus-client")
        return None
    from transformers import TrainerCallback

    names = {"loss": "training_loss", "grad_norm": "gradient_norm", "epoch": "training_epoch"}
    gauges: dict[str, Any] = {}

    class Gauges(TrainerCallback):  # type: ignore[misc]  # it has no types
        """Sets a gauge for each number that is logged."""

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **objects: Any) -> None:
            """Sets the gauges."""
            del args, control, objects
            for name, value in {**(logs or {}), "training_steps_total": state.global_step}.items():
                if not isinstance(value, int | float):
                    continue
                if name not in gauges:
                    gauges[name] = prometheus_client.Gauge(names.get(name, name), f"Logged as {name}.")
                gauges[name].set(value)

    try:
        prometheus_client.start_http_server(port, addr=LOOPBACK)
    except OSError as error:
        print(f"Prometheus: off. Port {port} cannot be used: {error.strerror}.")
        return None
    print(f"Prometheus: http://{LOOPBACK}:{port}/metrics")
    return Gauges()


def as_tokens(texts: list[str], tokenizer: Any, max_length: int) -> list[dict[str, Any]]:
    """The examples of the training."""
    ended = [f"{text}{tokenizer.eos_token}" for text in texts]
    rows = tokenizer(ended, truncation=True, max_length=max_length)["input_ids"]
    return [{"input_ids": row} for row in rows]


def trainer_of(options: argparse.Namespace, model: Any, tokenizer: Any, data: Any) -> Any:
    """The trainer, without callbacks of ours."""
    import torch
    import transformers

    has_gpu = torch.cuda.is_available()
    args = transformers.TrainingArguments(
        str(options.output_dir),
        run_name=options.run,
        num_train_epochs=options.epochs,
        max_steps=options.max_steps,
        per_device_train_batch_size=options.batch_size,
        gradient_accumulation_steps=options.gradient_accumulation_steps,
        learning_rate=options.learning_rate,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=not has_gpu,
        bf16=has_gpu and torch.cuda.is_bf16_supported(),
        disable_tqdm=True,
    )
    return transformers.Trainer(
        model,
        args,
        train_dataset=data,
        data_collator=transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False),
    )


def print_summary(trainer: Any, model: Any, gpu: dict[str, Any]) -> None:
    """What was trained, how the loss went, and what the GPU did."""
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    trained, total = model.get_nb_trainable_parameters()
    print(
        f"steps: {trainer.state.global_step}, loss: {losses[0]:.4f} at the start, {losses[-1]:.4f} at the end"
    )
    print(f"trained parameters: {trained:,} of {total:,} ({trained / total:.2%})")
    for name, values in gpu.items():
        print(f"{name}: {values['average']:.1f} on average, {values['max']:.1f} at most")


def main() -> None:
    """Loads, trains, saves, and prints a summary."""
    options = arguments()
    texts = read_texts(options.data)
    missing = [name for name in ("torch", "transformers", "peft") if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(f"{missing[0]} is not installed. Install it: pip install 'stepscope[transformers]' peft")
    import transformers

    from stepscope import GPUMonitor
    from stepscope.integrations.transformers import GPUMonitoringCallback, StepscopeCallback

    transformers.set_seed(0)
    model, tokenizer = load(options.model_config, options.gpu_index)
    model = with_lora(model, options.lora_rank)
    trainer = trainer_of(options, model, tokenizer, as_tokens(texts, tokenizer, options.max_length))

    log_dir = options.monitoring_log_dir
    config = None if log_dir is None else {"exporters": {"metrics_files": {"directory": str(log_dir)}}}
    gpu = GPUMonitor(gpu_index=options.gpu_index)
    recorder = StepscopeCallback(config=config, params=vars(options))
    trainer.add_callback(recorder)
    trainer.add_callback(GPUMonitoringCallback(gpu))
    served = prometheus_callback(options.prometheus_port) if options.enable_prometheus else None
    if served is not None:
        trainer.add_callback(served)

    trainer.train()
    trainer.save_model(str(options.output_dir))
    tokenizer.save_pretrained(str(options.output_dir))
    print_summary(trainer, model, gpu.get_summary())
    print(f"adapter: {options.output_dir}")
    if recorder.monitor is not None:
        print(f"next: stepscope show {recorder.monitor.run_id}")


if __name__ == "__main__":
    main()
