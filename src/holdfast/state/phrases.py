"""What short chunks are likely to say: words, and how agents' messages look when LangChain's are serialised.

A message of a kilobyte has little in it that repeats, so by itself it shrinks to half. With these phrases known
beforehand it shrinks by a fifth more. They are part of the format: a body of codec 2 cannot be read without exactly
these bytes. To improve them is to make a new codec.
"""

from __future__ import annotations

from typing import Final

PHRASES: Final = (
    b" the of and to a in that is it for you on with as are be this was have not or at from by will can what whic"
    b"h if your all there when has we one more about their would so also then them other time these new any out u"
    b"p how may like first some only its into two who could no make than over such should use after because betwe"
    b"en where while before through each here see need want please help using user find found set get call run fi"
    b"le data line list code error value name number order result test message question answer information exampl"
    b"e following work change check first read write open add show create update delete return returned failed su"
    b"ccess "
    b'{"role": "assistant", "content": "", "tool_calls": [{"id": "call_", "type": "function", "function": {"name"'
    b': "", "arguments": "{\\"query\\": \\""}, "role": "user", "tool_use", "tool_result", "tool_use_id": "toolu_"'
    b', "is_error": false, "text", "image_url", "https://www.'
    b"\xc7\xad\x05\x94\xbelangchain_core.messages.system\xadSystemMessage\x86\xa7content\xa0\xb1additional_kwargs"
    b"\x80\xb1response_metadata\x80\xa4type\xa6system\xa4name\xc0\xa2id\xd9$00000000-0000-0000-0000-000000000000"
    b"\xb3model_validate_json"
    b"\xc7\xd9\x05\x94\xbclangchain_core.messages.tool\xabToolMessage\x89\xa7content\xa0\xb1additional_kwargs\x80"
    b"\xb1response_metadata\x80\xa4type\xa4tool\xa4name\xa6search\xa2id\xd9$00000000-0000-0000-0000-000000000000"
    b"\xactool_call_id\xa5call_\xa8artifact\xc0\xa6status\xa7success\xb3model_validate_json"
    b"\xc8\x023\x05\x94\xbalangchain_core.messages.ai\xa9AIMessage\x89\xa7content\xa0\xb1additional_kwargs\x80"
    b"\xb1response_metadata\x88\xabtoken_usage\x83\xb1completion_tokens\x01\xadprompt_tokens\x02\xactotal_tokens"
    b"\x03\xaemodel_provider\xa6openai\xaamodel_name\xa3gpt\xb2system_fingerprint\xc0\xa2id\xa9chatcmpl-\xadfinis"
    b"h_reason\xaatool_calls\xa8logprobs\xc0\xabstop_reason\xa8end_turn\xa4type\xa2ai\xa4name\xc0\xa2id\xd9,lc_ru"
    b"n--00000000-0000-0000-0000-000000000000\xaatool_calls\x91\x84\xa4name\xa6search\xa4args\x81\xa5query\xa0"
    b"\xa2id\xa5call_\xa4type\xa9tool_call\xb2invalid_tool_calls\x90\xaeusage_metadata\x85\xacinput_tokens\x01"
    b"\xadoutput_tokens\x02\xactotal_tokens\x03\xb3input_token_details\x81\xaacache_read\x00\xb4output_token_deta"
    b"ils\x81\xa9reasoning\x00\xb3model_validate_json"
    b"\xc7\xd1\x05\x94\xbalangchain_core.messages.ai\xa9AIMessage\x89\xa7content\xa0\xb1additional_kwargs\x80\xb1"
    b"response_metadata\x80\xa4type\xa2ai\xa4name\xc0\xa2id\xd9$00000000-0000-0000-0000-000000000000\xaatool_call"
    b"s\x90\xb2invalid_tool_calls\x90\xaeusage_metadata\xc0\xb3model_validate_json"
    b"\xc7\x85\x05\x94\xbdlangchain_core.messages.human\xacHumanMessage\x86\xa7content\xa0\xb1additional_kwargs"
    b"\x80\xb1response_metadata\x80\xa4type\xa5human\xa4name\xc0\xa2id\xc0\xb3model_validate_json"
    b"\xc7\xaa\x05\x94\xbdlangchain_core.messages.human\xacHumanMessage\x86\xa7content\xa0\xb1additional_kwargs"
    b"\x80\xb1response_metadata\x80\xa4type\xa5human\xa4name\xc0\xa2id\xd9$00000000-0000-0000-0000-000000000000"
    b"\xb3model_validate_json"
)
