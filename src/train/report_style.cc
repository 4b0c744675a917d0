// The style sheet (report_style.h). Custom properties hold the two palettes; --t is a colour as "r,g,b".
#include "train/report_style.h"

namespace wych::train {
namespace {

constexpr std::string_view kHead = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:"/>
<meta name="color-scheme" content="light dark"/>
<style>
:root{--page:#fff;--text:#15191e;--quiet:#5c6672;--rule:#e4e8ec;--soft:#f5f7f9;--tip:#15191e;--tiptext:#fff;
--c0:#2563c4;--c1:#cf5f0a;--c2:#5c6672;--c3:#8d97a3;--c4:#b3261e;--fill:.3;
--e0:230,145,0;--e1:70,170,230;--e2:0,150,110;--e3:214,190,0;--e4:50,90,210;--e5:205,70,20;--e6:200,95,165;
--e7:125,130,138}
@media (prefers-color-scheme:dark){:root{--page:#0f1216;--text:#e7eaee;--quiet:#9aa4b0;--rule:#29303a;
--soft:#171c22;--tip:#e7eaee;--tiptext:#0f1216;--c0:#6da7ff;--c1:#ff9d4d;--c2:#9aa4b0;--c3:#737d89;--c4:#ff7b72;
--fill:.34;--e4:95,130,255}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0 auto;max-width:74rem;padding:2.2rem 1.25rem 4rem;background:var(--page);color:var(--text);
font:15px/1.55 Inter,system-ui,-apple-system,"Segoe UI",sans-serif;font-feature-settings:"tnum","cv11"}
h1{margin:0;font-size:2.1rem;line-height:1.15;letter-spacing:-.02em;overflow-wrap:anywhere}
h2{margin:3.2rem 0 .3rem;padding-top:1.1rem;border-top:1px solid var(--rule);font-size:1.25rem;
letter-spacing:-.01em}
h3{margin:1.8rem 0 .4rem;font-size:1rem}
p{margin:.3rem 0;overflow-wrap:anywhere}
p,figcaption,summary{color:var(--quiet)}
p.lead{max-width:48rem;margin:.6rem 0 0;font-size:1.08rem}
h2+p,h3+p{max-width:48rem;margin-bottom:1rem}
p b{color:var(--text);font-weight:600}
.status{display:inline-block;margin:0 0 .5rem;padding:.05rem .6rem;border:1px solid var(--rule);
border-radius:99px;font-size:.8rem;color:var(--quiet)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.2rem,1fr));gap:1.2rem 1.5rem;
margin:1.9rem 0 0;padding:0}
.tiles dt{color:var(--quiet);font-size:.82rem}
.tiles dd{margin:0;font-size:1.75rem;font-weight:600;letter-spacing:-.02em;line-height:1.3}
.tiles dd small{display:block;white-space:pre-line;font-size:.82rem;font-weight:400;letter-spacing:0;color:var(--quiet)}
.grid2,.grid3{display:grid;gap:1.6rem 2.4rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,21rem),1fr))}
.grid2{grid-template-columns:repeat(auto-fit,minmax(min(100%,27rem),1fr))}
.gap{margin-top:1.6rem}
figure{margin:0;min-width:0}
figcaption{display:flex;flex-wrap:wrap;gap:.1rem .9rem;align-items:baseline;font-size:.85rem}
figcaption b{color:var(--text);font-size:.95rem;font-weight:600}
figcaption .warn{color:var(--c4);font-weight:600}
.key i{display:inline-block;width:1.1rem;height:0;border-top:2px solid var(--c);margin-right:.35rem;
vertical-align:middle}
.key i.dots{width:.5rem;height:.5rem;border:0;border-radius:50%;background:var(--c)}
.key i.ring{width:.6rem;height:.6rem;border:2px solid var(--c);border-radius:50%}
.key i.ticks{width:2px;height:.7rem;border:0;background:var(--c)}
.key i.faint{border-top-width:1px;opacity:.55}
.plot{position:relative;height:190px;margin:.7rem .8rem 2.5rem 3rem}
.tall .plot{height:340px}
.plot svg,.plot img{display:block;width:100%;height:100%}
.plot svg{overflow:visible}
.plot img{image-rendering:pixelated;outline:1px solid var(--rule)}
.plot span{position:absolute;font-size:12px;line-height:1;color:var(--quiet);white-space:nowrap}
.plot .y{right:100%;margin-right:8px;transform:translateY(-50%)}
.plot .x{top:100%;margin-top:7px;transform:translateX(-50%)}
.plot .across{top:100%;right:0;margin-top:23px}
.plot .level{right:2px;margin-top:-15px}
.plot .left{right:auto;left:2px}
.map{margin-bottom:1.5rem}
.map .first{left:0;transform:none}.map .last{left:auto;right:0;transform:none}
.map .y{font-size:11px;margin-right:6px}
.map .dead{color:var(--c4);font-weight:700}
.c0{--c:var(--c0)}.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}.c4{--c:var(--c4)}
path{fill:none;vector-effect:non-scaling-stroke;stroke-linejoin:round}
.grid{stroke:var(--rule);stroke-width:1}
.line{stroke:var(--c);stroke-width:2;stroke-linecap:round}
.faint{stroke-width:1;opacity:.38}
path.level{stroke-width:1.3;stroke-dasharray:5 4}
.dots{stroke:var(--c);stroke-width:7;stroke-linecap:round}
.strips{position:absolute;inset:0}
.strips input{position:absolute;top:0;bottom:0;left:calc(var(--i)*var(--w));width:var(--w);height:100%;margin:0;
appearance:none;-webkit-appearance:none;outline:0;cursor:crosshair;border-radius:0;font:inherit}
.strips input:hover,.strips input:focus-visible{background:linear-gradient(var(--quiet),var(--quiet)) 50%/1px 100%
no-repeat}
.strips:hover input:focus:not(:hover){background:none}
.strips input:hover::after,.strips input:focus::after{content:attr(aria-label);position:absolute;top:4px;
left:calc(50% + 8px);z-index:2;padding:.35rem .55rem;border-radius:6px;background:var(--tip);color:var(--tiptext);
font-size:12px;line-height:1.45;white-space:pre;pointer-events:none}
.strips .r:hover::after,.strips .r:focus::after{left:auto;right:calc(50% + 8px)}
.strips:hover input:focus:not(:hover)::after{content:none}
.switch{position:absolute;opacity:0;pointer-events:none}
.tabs{display:flex;flex-wrap:wrap;gap:.3rem;margin:.4rem 0 1rem}
.tabs label{padding:.2rem .7rem;border:1px solid var(--rule);border-radius:99px;font-size:.85rem;cursor:pointer;
color:var(--quiet)}
.tabs label:hover{color:var(--text)}
#lin:checked~.log,#log:checked~.lin{display:none}
#lin:checked~.tabs [for=lin],#log:checked~.tabs [for=log]{background:var(--text);border-color:var(--text);
color:var(--page)}
#lin:focus-visible~.tabs [for=lin],#log:focus-visible~.tabs [for=log]{outline:2px solid var(--c0);outline-offset:2px}
.scale{display:inline-flex;gap:.45rem;align-items:center;font-size:.85rem;color:var(--quiet)}
.scale i{width:9rem;height:.75rem;border-radius:2px;outline:1px solid var(--rule);
background:linear-gradient(90deg,rgb(38,112,200),rgba(38,112,200,0) 50%,rgba(226,112,24,0) 50%,rgb(226,112,24))}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%}
th,td{padding:.32rem 1.1rem .32rem 0;border-bottom:1px solid var(--rule);text-align:left;vertical-align:top}
th{font-weight:400;color:var(--quiet);font-size:.87rem}
td.n,th.n{text-align:right;white-space:nowrap}
tr.all td{font-weight:600}
td:first-child{white-space:nowrap}
.facts th{width:9rem;white-space:nowrap}
.facts td{overflow-wrap:anywhere}
.fit{width:auto;min-width:min(100%,26rem)}
.track{width:36%;min-width:9rem;padding:.32rem .5rem}
th.track{white-space:nowrap;text-align:center}
td.track div{position:relative;height:1.4em;background:linear-gradient(var(--rule),var(--rule)) 0 50%/100% 1px
no-repeat}
td.track i{position:absolute;top:50%;width:.7rem;height:.7rem;margin:-.35rem 0 0 -.35rem;border-radius:50%;
border:2px solid var(--c);background:var(--page)}
td.track i.c0{background:var(--c0)}
td.track u{position:absolute;top:50%;height:2px;margin-top:-1px;background:var(--c0);opacity:.35}
.matrix th,.matrix td{padding:.28rem .2rem;border:0;text-align:center;font-size:.85rem}
.matrix th:first-child{text-align:right;padding-right:.7rem;width:1%;white-space:nowrap}
.matrix td{border:1px solid var(--page);border-radius:3px;background:rgba(var(--t),var(--a))}
.below{--t:38,112,200}.above{--t:226,112,24}
.layers .only{display:none}
.chip{display:inline-block;min-width:1.7em;padding:0 .35em;border-radius:3px;text-align:center;
background:rgba(var(--t),var(--fill));border-bottom:2px var(--s,solid) rgb(var(--t));font-size:.85rem}
.words{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,17rem),1fr));gap:.45rem 1.8rem;margin:0;
padding:0;list-style:none}
.words li{display:flex;gap:.6rem;align-items:baseline;min-width:0}
.words .chip{flex:none}
.words code{margin-right:.1em}
.words p{margin:0;font-size:.87rem;line-height:1.5;color:var(--text)}
code{font:inherit;font-family:ui-monospace,"DejaVu Sans Mono",monospace;font-size:.86em;white-space:pre-wrap;
background:var(--soft);border-radius:3px;padding:0 .2em}
.text{position:relative;margin:0;padding-top:2rem}
.text h3{position:absolute;top:0;margin:0}
.tokens{margin:0;color:var(--text);white-space:pre-wrap;line-height:2;font-size:.95rem}
.tokens i{font-style:normal;margin-right:1px;padding:.14em 0;border-radius:2px;cursor:default;
background:rgba(var(--t),var(--fill));border-bottom:2px var(--s,solid) rgb(var(--t))}
.tokens i.given{font-weight:600}
.tokens i:hover{outline:1.5px solid var(--text)}
.tokens i:hover::after{position:absolute;top:-.15rem;right:0;z-index:2;max-width:72%;padding:.3rem .55rem;
border-radius:6px;background:var(--tip);color:var(--tiptext);font-size:12px;font-weight:400;line-height:1.45;
white-space:normal;pointer-events:none}
.mix{margin-top:.5rem;font-size:.82rem}
.sample{margin:0;padding:0 0 0 1rem;border-left:2px solid var(--rule)}
.sample pre{margin:.1rem 0 0;padding:0;background:none;white-space:pre-wrap;overflow-wrap:anywhere}
pre{margin:.6rem 0 0;padding:.9rem;background:var(--soft);border-radius:6px;overflow-x:auto;
font:12.5px/1.55 ui-monospace,"DejaVu Sans Mono",monospace;color:var(--text)}
details{margin-top:1rem}
summary{cursor:pointer}
footer{margin-top:3rem;font-size:.85rem;color:var(--quiet)}
@media (max-width:560px){body{padding:1.4rem 1rem 3rem}h1{font-size:1.7rem}.tall .plot{height:260px}
.plot{margin-left:2.6rem}td,th{padding-right:.7rem}.track{display:none}.tokens{line-height:2.1}
.words{grid-template-columns:1fr}}
@media print{.tabs,.strips{display:none}h2{break-after:avoid}figure,.sample,.text{break-inside:avoid}}
)";

}  // namespace

std::string_view report_head() { return kHead; }

}  // namespace wych::train
