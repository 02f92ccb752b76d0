"""Shapes of secrets and texts that look like them but are none.

Secrets are put together when the tests run, from a fixed seed: no scanner finds one in this file.
"""

from __future__ import annotations

import base64
import random
import string

_random = random.Random(20261115)

CAPITALS = string.ascii_uppercase + string.digits
LETTERS = string.ascii_letters + string.digits
BASE64 = LETTERS + "+/"
URL_SAFE = LETTERS + "-_"
HEX = "0123456789abcdef"


def drawn(length: int, alphabet: str = LETTERS, source: random.Random = _random) -> str:
    """Random text that begins and ends with a letter or digit and has every kind of letter."""
    while True:
        text = "".join(source.choice(alphabet) for _ in range(length))
        if text[0].isalnum() and text[-1].isalnum() and (alphabet == HEX or any(map(str.isdigit, text))):
            return text


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _jwt() -> str:
    parts = (f'{{"alg":"HS256","n":"{drawn(6)}"}}', f'{{"sub":"{drawn(12)}"}}', drawn(32))
    return ".".join(base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts)


def _pem(kind: str) -> tuple[str, str]:
    body = "\n".join(drawn(64, BASE64) for _ in range(4))
    return f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----", body


def secrets() -> dict[str, tuple[str, str]]:
    """Text by what it shows, each with the part of it that must not be recorded."""
    plain = {
        "AWS access key id": "AK" + "IA" + drawn(16, CAPITALS),
        "AWS temporary key id": "AS" + "IA" + drawn(16, CAPITALS),
        "AWS session token": "IQoJb3JpZ2lu" + drawn(200, BASE64),
        "Google API key": "AI" + "za" + drawn(35, URL_SAFE),
        "Google access token": "ya" + "29." + drawn(60, URL_SAFE),
        "Google client secret": "GOC" + "SPX-" + drawn(28, URL_SAFE),
        "Azure client secret": drawn(3) + "8Q~" + drawn(34),
        "GitHub token": "gh" + "p_" + drawn(36),
        "GitHub app token": "gh" + "s_" + drawn(36),
        "GitHub fine-grained token": "github" + "_pat_" + drawn(22) + "_" + drawn(59),
        "GitLab token": "gl" + "pat-" + drawn(20, URL_SAFE),
        "Hugging Face token": "h" + "f_" + drawn(34),
        "OpenAI key": "s" + "k-" + drawn(48),
        "OpenAI project key": "s" + "k-proj-" + drawn(100, URL_SAFE),
        "Anthropic key": "s" + "k-ant-api03-" + drawn(93, URL_SAFE) + "AA",
        "Slack bot token": "xo" + "xb-" + drawn(12, string.digits) + "-" + drawn(24),
        "Slack app token": "xa" + "pp-1-" + drawn(11, CAPITALS) + "-" + drawn(40, HEX),
        "Stripe key": "s" + "k_live_" + drawn(24),
        "Stripe webhook secret": "wh" + "sec_" + drawn(32),
        "JSON web token": _jwt(),
        "npm token": "np" + "m_" + drawn(36),
        "PyPI token": "py" + "pi-AgE" + drawn(150, URL_SAFE),
        "W&B key": "wan" + "db_v1_" + drawn(70),
        "Groq key": "g" + "sk_" + drawn(52),
        "Docker token": "dckr" + "_pat_" + drawn(27),
        "Databricks token": "da" + "pi" + drawn(32, HEX),
        "SendGrid key": "S" + "G." + drawn(22) + "." + drawn(43),
        "Vault token": "hv" + "s." + drawn(90),
        "Telegram bot token": drawn(10, string.digits) + ":AA" + drawn(33),
        "Discord bot token": "M" + drawn(23) + "." + drawn(6) + "." + drawn(38),
        "AWS secret key": drawn(40, BASE64),
        "Azure storage key": drawn(86, BASE64) + "==",
        "random key": drawn(32),
    }
    word = drawn(9)
    around = {
        "password in an address": f"connect to postgresql://ada:{word}@db.example/runs",
        "password with @ and /": f"amqp://ada:{word}/x@y@queue.example:5672/v",
        "token in an address": f"git clone https://{word}{word}@git.example/a.git",
        "Slack webhook": f"POST https://hooks.slack.com/services/T01/B02/{word}",
        "Discord webhook": f"https://discord.com/api/webhooks/123456/{word}",
        "Teams webhook": f"https://x.webhook.office.com/webhookb2/{word}@y/IncomingWebhook/z",
        "bearer header": f"Authorization: Bearer {word}",
        "basic header": f"authorization: Basic {_base64(f'ada:{word}')}",
        "header in a dictionary": f"{{'Authorization': 'token {word}', 'Accept': '*/*'}}",
        "cookie header": f"Cookie: session={word}; theme=dark",
        "shell variable": f"export HF_TOKEN={word} && train",
        "glued variable": f"PGPASSWORD={word} psql",
        "flag and value": f"train --api-key {word} --lr 0.1",
        "flag=value": f"train --db.password={word} --lr 0.1",
        "command as a list": f"Command '['train', '--password', '{word}']' returned 1",
        "command as JSON": f'["train","--secret","{word}"]',
        "JSON": f'{{"user": "ada", "password": "{word} {word}", "port": 1}}',
        "JSON in JSON": f'{{"body": "{{\\"api_key\\": \\"{word}\\"}}"}}',
        "YAML": f"db:\n  password: {word}\n  port: 5432",
        "SQL connection string": f"Server=db;User Id=ada;Password={word},x;Database=runs",
        "storage connection string": f"AccountName=a;AccountKey={word}==;EndpointSuffix=e",
        "shared access signature": f"https://a.blob.example/c?se=2027&sig={word}{word}{word}%3D&sp=r",
        "presigned address": f"https://s3.example/o?X-Amz-Credential={word}&X-Amz-Expires=60",
        "netrc": f"machine api.wandb.ai login user password {word}",
        "W&B key under its name": f"WANDB_API_KEY={drawn(31, HEX)}{word.encode().hex()[:9]}",
        "curl user": f"curl -u ada:{word} https://x.example",
        "unclosed quote": f"secret = '{word} and more",
        "words for a key": f"API key: {word}",
        "keyword argument": f"connect(host='h', password=b'{word}', port=1)",
    }
    corpus = {name: (f"value {text} seen", text) for name, text in plain.items()}
    corpus |= {name: (text, word) for name, text in around.items() if word in text}
    name = "W&B key under its name"
    corpus[name] = (around[name], around[name].partition("=")[2])
    corpus["basic header"] = (around["basic header"], _base64(f"ada:{word}"))
    for kind in ("RSA PRIVATE KEY", "OPENSSH PRIVATE KEY", "PRIVATE KEY"):
        text, body = _pem(kind)
        corpus[kind] = (f"before {text} after", body[:60])
    return corpus


INNOCENT = [
    "loss=0.3123 lr=1e-4 grad_norm=2.71 tokens_per_second=12345.6",
    "tokenizer=gpt2 max_tokens=4096 num_tokens: 512 pad_token=<pad> eos_token='</s>' bos_token_id=1",
    "loss/token: 0.4231 per_token_loss=1.25 token_count=128 token_type_ids=[0, 1] image_token=<image>",
    "commit 3f786850e387550fdab836ed7e6dc881de23001b",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0bb822cd15d6c15b0f00a0",
    "SHA256:nThbg6kXUpJWGl7E1IGOCspRomTxdCARLviKw6E5SY8 is the fingerprint",
    "integrity sha384-oqVuAfXRKap7fdgcCY5uykM6+R9GqQ8K/uxy9rx7HNQlGYl1kPzQho1wx4JwY8wC",
    "md5 d41d8cd98f00b204e9800998ecf8427e matches",
    "run 550e8400-e29b-41d4-a716-446655440000 resumed",
    "GPU-8f3c2f1e-9f0a-4c1d-b3d2-1a2b3c4d5e6f is hot",
    "mnist-20261115-090249-dae1 joined segment 6918a2f9c0ffee",
    "of mnist-1a2b3c4d/6918a2f9c0ffee/0 trace 4bf92f3577b34da6a3ce929d0e0e4736 span 00f067aa0ba902b7",
    "wandb run 3x7k9q2z, ULID 01ARZ3NDEKTSV4RRFFQ69G5FAV",
    "/data/imagenet/train/n01440764/n01440764_10026.JPEG",
    "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py:1501",
    "~/.cache/huggingface/hub/models--meta-llama--Llama-2-7b-hf/snapshots/8cca527612d856d7d32bd94f8103728d614eb852",
    "s3://bucket/checkpoints/llama-3-8B-instruct/step_00012000/model-00001-of-00004.safetensors",
    "abfss://container@account.dfs.core.windows.net/data",
    "ssh://git@github.com/org/repo.git and git@github.com:org/repo.git",
    "http://localhost:8080/repo/@scope/package and mail to ada@example.org",
    "MixtralForCausalLM8x7BInstructV2Tokenizer LlamaForSequenceClassification",
    "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x32_stage3_warpsize2x2x1_tensor16x8x16_kernel",
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEENS_6detail5ArrayIPcLi3EEEEEviT0_T1_",
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
    "model.layers.31.self_attn.key_proj.weight key_padding_mask=None key_dim=64 primary_key=id cache_key=abc",
    "sk-learn-contrib-lightning and pk_users_account_id_index and xai-shap-explanations-of-features",
    "2026-11-15T09:02:49.123456Z INFO step 1200/100000 eta 3:14:15",
    "CUDA_VISIBLE_DEVICES=0,1,2,3 OMP_NUM_THREADS=8 NCCL_DEBUG=INFO",
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,max_split_size_mb:512",
    "PWD=/srv/project OLDPWD=/srv",
    "password=None token=null secret= api_key=${API_KEY} token=$TOKEN",
    "token_file=/run/secrets/token password_file: /run/p secret_name=prod-db",
    "invalid token: expected a name, got a number",
    "Bearer authentication failed, Basic training finished",
    "docker run -u 1000:1000 --user=0:0 image",
    "0x7ffee4c0b8a0 at 0x00007f8a2c3d4e5f",
    "192.168.0.1:29500 [2001:db8::8a2e:370:7334]:443 aa:bb:cc:dd:ee:ff",
    "Adam(betas=(0.9, 0.999), eps=1e-08, lr=0.0003, weight_decay=0.01)",
    "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 79.15 GiB total capacity)",
    "RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x768 and 512x10)",
    "KeyError: 'input_ids'",
    "    token = next(tokens, None)",
    "the author passed the secretion test with a monkey, forward_pass=12 first_pass=3",
    "x86_64-conda_cos6-linux-gnu-c++ cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
    "torch==2.3.1+cu121 nvidia-cudnn-cu12==8.9.2.26 transformers @ git+https://github.com/huggingface/transformers",
    "TransformerEngineBaseModuleFloat8CurrentScalingRecipe",
    "data/shard-000123-of-008192.tar?versionId=null",
    "https://example.org/docs/a-long-page-about-training-language-models-on-many-gpus#section-2-3",
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "Ünïcödé: Größe 12 µs × 3 — ok ✓",
    "=" * 80 + " epoch 3 " + "-" * 80,
    "",
]
