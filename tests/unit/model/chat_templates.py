"""Templates in the manner of public model families, each with a conversation and the prompt it makes, by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": " Hi "},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "Bye"},
]
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"city": "Zürich"}}}


@dataclass(frozen=True)
class Style:
    template: str
    prompt: str
    messages: list[dict[str, Any]] = field(default_factory=lambda: CHAT)
    options: dict[str, Any] = field(default_factory=dict)


STYLES = {
    "chatml": Style(
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' "
        "+ '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n"
        "<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n",
    ),
    "chatml without a generation prompt": Style(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
        "<|im_start|>user\nBye<|im_end|>\n",
        CHAT[-1:],
        {"add_generation_prompt": False},
    ),
    "llama 2": Style(
        "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
        "{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}"
        "{% set system_message = false %}{% endif %}{% for message in loop_messages %}"
        "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}"
        "{% endif %}{% if loop.index0 == 0 and system_message != false %}"
        "{% set content = '<<SYS>>\n' + system_message + '\n<</SYS>>\n\n' + message['content'] %}"
        "{% else %}{% set content = message['content'] %}{% endif %}"
        "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
        "{% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}",
        "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\n Hi [/INST] Hello. </s><s>[INST] Bye [/INST]",
    ),
    "llama 3": Style(
        "{{- bos_token }}\n{%- if date_string is not defined %}\n"
        "    {%- set date_string = strftime_now('%d %b %Y') %}\n{%- endif %}\n"
        "{%- for message in messages %}\n"
        "    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}\n"
        "    {%- if loop.first %}\n        {{- 'Today Date: ' + date_string + '\n\n' }}\n    {%- endif %}\n"
        "    {{- message['content'] | trim + '<|eot_id|>' }}\n{%- endfor %}\n"
        "{%- if add_generation_prompt %}\n"
        "    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}\n{%- endif %}\n",
        "<s><|start_header_id|>system<|end_header_id|>\n\nToday Date: 05 Mar 2024\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nHello.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    "gemma": Style(
        "{{ bos_token }}\n{%- if messages[0]['role'] == 'system' -%}\n"
        "    {%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}\n"
        "    {%- set loop_messages = messages[1:] -%}\n{%- else -%}\n"
        "    {%- set first_user_prefix = '' -%}\n    {%- set loop_messages = messages -%}\n{%- endif -%}\n"
        "{%- for message in loop_messages -%}\n"
        "    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}\n"
        "    {{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else '') }}\n"
        "    {{- message['content'] | trim }}{{ '<end_of_turn>\n' }}\n{%- endfor -%}\n"
        "{%- if add_generation_prompt -%}\n    {{ '<start_of_turn>model\n' }}\n{%- endif -%}\n",
        "<s><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello.<end_of_turn>\n"
        "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n",
    ),
    "mistral": Style(
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }}[/INST]"
        "{% elif m.role == 'assistant' %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}",
        "<s>[INST]  Hi [/INST] Hello.</s>[INST] Bye[/INST]",
    ),
    "phi": Style(
        "{% for message in messages %}{{ '<|' + message['role'] + '|>\n' + message['content'] + '<|end|>\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}",
        "<|system|>\nBe brief.<|end|>\n<|user|>\n Hi <|end|>\n<|assistant|>\nHello.<|end|>\n<|user|>\nBye<|end|>\n"
        "<|assistant|>\n",
    ),
    "zephyr": Style(
        "{% for message in messages %}\n{% if message['role'] == 'user' %}\n"
        "{{ '<|user|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'system' %}\n"
        "{{ '<|system|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'assistant' %}\n"
        "{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif %}\n"
        "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}",
        "<|system|>\nBe brief.</s>\n<|user|>\n Hi </s>\n<|assistant|>\nHello.</s>\n<|user|>\nBye</s>\n<|assistant|>\n",
    ),
    "qwen with tools": Style(
        "{%- if tools %}\n    {{- '<|im_start|>system\n# Tools\n<tools>' }}\n"
        "    {%- for tool in tools %}\n        {{- '\n' }}\n        {{- tool | tojson }}\n    {%- endfor %}\n"
        "    {{- '\n</tools><|im_end|>\n' }}\n{%- endif %}\n"
        "{%- set ns = namespace(last=-1) %}\n"
        "{%- for message in messages[::-1] %}\n"
        "    {%- if ns.last == -1 and message.role == 'user' and not message.content.startswith('<tool_response>') %}\n"
        "        {%- set ns.last = messages|length - 1 - loop.index0 %}\n    {%- endif %}\n{%- endfor %}\n"
        "{%- for message in messages %}\n    {{- '<|im_start|>' + message.role + '\n' }}\n"
        "    {%- if message.content is none %}\n"
        "        {%- for call in message.tool_calls %}\n"
        "            {{- '<tool_call>' ~ call.function.name ~ call.function.arguments | tojson ~ '</tool_call>' }}\n"
        "        {%- endfor %}\n    {%- else %}\n        {{- message.content }}\n    {%- endif %}\n"
        "    {{- '<|im_end|>\n' }}\n{%- endfor %}\n"
        "{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\n' ~ ns.last }}\n{%- endif %}\n",
        '<|im_start|>system\n# Tools\n<tools>\n{"type": "function", "function": {"name": "weather", "parameters": '
        '{"city": "Zürich"}}}\n</tools><|im_end|>\n<|im_start|>user\nRain?<|im_end|>\n<|im_start|>assistant\n'
        '<tool_call>weather{"city": "<Z&>"}</tool_call><|im_end|>\n<|im_start|>tool\n<tool_response>no<|im_end|>\n'
        "<|im_start|>assistant\n0",
        [
            {"role": "user", "content": "Rain?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "<Z&>"}}}],
            },
            {"role": "tool", "content": "<tool_response>no"},
        ],
        {"tools": [TOOL]},
    ),
    "marks of training, macros and loop controls": Style(
        "{%- macro turn(role, text) -%}[{{ role }}] {{ text }}{%- endmacro -%}\n"
        "{% for message in messages %}{% if message.role == 'system' %}{% continue %}{% endif %}"
        "{% if loop.index > 3 %}{% break %}{% endif %}"
        "{% if message.role == 'assistant' %}{% generation %}{{ turn('a', message.content) }}{% endgeneration %}"
        "{% else %}{{ turn('u', message.content | trim | upper) }}{% endif %};{% endfor %}"
        "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | join('|') }}",
        "[u] HI;[a] Hello.; Hi |Bye",
    ),
    "a variable of its own": Style(
        "{{ messages[0].content }}"
        "{% if enable_thinking is defined and enable_thinking is false %}<think></think>{% endif %}",
        "Be brief.<think></think>",
        options={"enable_thinking": False},
    ),
}
